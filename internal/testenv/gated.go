// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// Gated returns a client that writes with c what the transport of a gate sends. The transport decides by a request for
// the same kind of write. The client reads with c.
func Gated(transport func(http.RoundTripper) http.RoundTripper, c client.Client) client.Client {
	send := func(path, body string) error {
		req := &http.Request{
			Method: http.MethodPatch, URL: &url.URL{Path: "/apis/" + path},
			Header: http.Header{"Content-Type": {string(types.MergePatchType)}}, Body: io.NopCloser(strings.NewReader(body)),
		}
		resp, err := transport(sends{}).RoundTrip(req)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}
	err := send("example.org/v1/anything", "{}")
	if err == nil {
		return c
	}
	return interceptor.NewClient(unwatched{c}, interceptor.Funcs{
		Create:      func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return err },
		Delete:      func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error { return err },
		DeleteAllOf: func(context.Context, client.WithWatch, client.Object, ...client.DeleteAllOfOption) error { return err },
		Update:      func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error { return err },
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return err
		},
		Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
			return err
		},
		SubResourceCreate: func(context.Context, client.Client, string, client.Object, client.Object, ...client.SubResourceCreateOption) error {
			return err
		},
		SubResourceUpdate: func(context.Context, client.Client, string, client.Object, ...client.SubResourceUpdateOption) error {
			return err
		},
		SubResourceApply: func(context.Context, client.Client, string, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
			return err
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			body, broken := patch.Data(obj)
			if _, ours := obj.(*v1alpha1.ScheduledMachine); !ours || broken != nil || patch.Type() != types.MergePatchType {
				return errors.Join(err, broken)
			}
			if err := send("5spot.finos.org/v1alpha1/namespaces/any/scheduledmachines/any/"+sub, string(body)); err != nil {
				return err
			}
			return c.Status().Patch(ctx, obj, patch, opts...)
		},
	})
}

// sends is a transport that sends every request.
type sends struct{}

func (sends) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

// unwatched is a client without watches.
type unwatched struct{ client.Client }

func (unwatched) Watch(context.Context, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
	return nil, errors.ErrUnsupported
}

// GatedCache returns cache with uncached clients that write through transport, as the client of Gated does.
func GatedCache(transport func(http.RoundTripper) http.RoundTripper, cache clustercache.ClusterCache) clustercache.ClusterCache {
	return gatedCache{cache, transport}
}

type gatedCache struct {
	clustercache.ClusterCache
	transport func(http.RoundTripper) http.RoundTripper
}

func (g gatedCache) GetUncachedClient(ctx context.Context, cluster client.ObjectKey) (client.Client, error) {
	c, err := g.ClusterCache.GetUncachedClient(ctx, cluster)
	if err != nil {
		return nil, err
	}
	return Gated(g.transport, c), nil
}
