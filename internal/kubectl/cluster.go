// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/retry"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/writer"
)

const (
	resource          = "scheduledmachines"
	reclaimedResource = "reclaimedmachines"
)

// cluster reads and patches ScheduledMachines. Each call is one request; there is no API discovery.
type cluster struct {
	rest      rest.Interface
	namespace string
	// chosen reports that the command line names the namespace.
	chosen bool
}

// connect builds a client for the cluster that the flags select. It sends no request.
func connect(config clientcmd.ClientConfig) (*cluster, error) {
	namespace, chosen, err := config.Namespace()
	if err != nil {
		return nil, failed("reading kubeconfig", err)
	}
	c, err := config.ClientConfig()
	if err != nil {
		return nil, failed("reading kubeconfig", err)
	}
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("building scheme: %w", err)
	}
	c.QPS, c.Burst = 50, 300 // as kubectl: with client-go's defaults, undo-delete of 100 machines takes minutes
	c.GroupVersion = &v1alpha1.GroupVersion
	c.APIPath = "/apis"
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, failed("reading kubeconfig", err)
	}
	return &cluster{rest: client, namespace: namespace, chosen: chosen}, nil
}

// get returns the objects with those names. It joins one error per object that it cannot read.
func (c *cluster) get(ctx context.Context, names []string) ([]v1alpha1.ScheduledMachine, error) {
	objects := make([]v1alpha1.ScheduledMachine, len(names))
	var errs []error
	for i, name := range names {
		err := c.rest.Get().Namespace(c.namespace).Resource(resource).Name(name).Do(ctx).Into(&objects[i])
		if (apierrors.IsNotFound(err) || apierrors.IsForbidden(err)) && !c.chosen {
			err = c.findInOtherNamespaces(ctx, name, &objects[i], err)
		}
		errs = append(errs, failed("reading "+name, err))
	}
	return objects, errors.Join(errs...)
}

// findInOtherNamespaces searches all namespaces for the object. get calls it only if the command line names no
// namespace. It succeeds if the person may list all namespaces and exactly one object has the name.
func (c *cluster) findInOtherNamespaces(ctx context.Context, name string, into *v1alpha1.ScheduledMachine, absent error) error {
	var all v1alpha1.ScheduledMachineList
	if err := c.rest.Get().Resource(resource).Param("fieldSelector", "metadata.name="+name).Do(ctx).Into(&all); err == nil && len(all.Items) == 1 && all.Items[0].Name == name {
		*into = all.Items[0]
		return nil
	}
	if apierrors.IsForbidden(absent) { // The API server's error names the namespace already.
		return fmt.Errorf("%w: for another namespace, add -n NAMESPACE", absent)
	}
	return fmt.Errorf("%w in namespace %s: for another, add -n NAMESPACE", absent, c.namespace)
}

// list returns the objects of one namespace, or of all namespaces if namespace is empty.
func (c *cluster) list(ctx context.Context, namespace string) ([]v1alpha1.ScheduledMachine, error) {
	var objects v1alpha1.ScheduledMachineList
	err := c.rest.Get().Namespace(namespace).Resource(resource).Do(ctx).Into(&objects)
	if apierrors.IsForbidden(err) {
		err = fmt.Errorf("%w; if you may see only some machines, name one: kubectl 5spot status NAME", err)
	}
	return objects.Items, failed("listing "+resource, err)
}

// change reads one object and applies the merge patch that want returns for it. A nil patch means no change. On a
// conflict it reads the object again and calls want again. It returns the object as it then is in the cluster.
func (c *cluster) change(ctx context.Context, name string, want func(*v1alpha1.ScheduledMachine) (map[string]any, error)) (*v1alpha1.ScheduledMachine, error) {
	var m *v1alpha1.ScheduledMachine
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		objects, err := c.get(ctx, []string{name})
		if err != nil {
			return err
		}
		if m = &objects[0]; m.Namespace != c.namespace {
			return fmt.Errorf("%s is in namespace %s, which the command line does not name: add -n %s", name, m.Namespace, m.Namespace)
		}
		patch, err := want(m)
		if err != nil || patch == nil {
			return err
		}
		m, err = c.patch(ctx, m, patch)
		return err
	})
	if apierrors.IsConflict(err) {
		err = failed("changing "+name, err)
	}
	return m, err
}

// patch sends a merge patch that fails with a conflict if m is not the newest version. It returns a conflict unwrapped,
// so that the caller can retry.
func (c *cluster) patch(ctx context.Context, m *v1alpha1.ScheduledMachine, patch map[string]any) (*v1alpha1.ScheduledMachine, error) {
	metadata, ok := patch["metadata"].(map[string]any)
	if !ok {
		metadata = map[string]any{}
		patch["metadata"] = metadata
	}
	metadata["resourceVersion"] = m.ResourceVersion
	body, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("building patch: %w", err)
	}
	changed := &v1alpha1.ScheduledMachine{}
	err = c.rest.Patch(types.MergePatchType).Namespace(m.Namespace).Resource(resource).Name(m.Name).
		Param("fieldManager", writer.Plugin).Body(body).Do(ctx).Into(changed)
	if err != nil && !apierrors.IsConflict(err) {
		return nil, failed("changing "+m.Name, err)
	}
	return changed, err
}

// reclaimedMachine returns the ReclaimedMachine with that name. It returns nil if there is none, or if the person may
// not read it.
func (c *cluster) reclaimedMachine(ctx context.Context, name string) (*v1alpha1.ReclaimedMachine, error) {
	left := &v1alpha1.ReclaimedMachine{}
	err := c.rest.Get().Namespace(c.namespace).Resource(reclaimedResource).Name(name).Do(ctx).Into(left)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, nil
	}
	return left, failed("reading ReclaimedMachine "+name, err)
}

// forget deletes this ReclaimedMachine, and no later one with its name. A missing object is not an error.
func (c *cluster) forget(ctx context.Context, left *v1alpha1.ReclaimedMachine) error {
	err := c.rest.Delete().Namespace(left.Namespace).Resource(reclaimedResource).Name(left.Name).
		Body(&metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(left.UID))}).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// reconnect is the pause before the next watch, for a server that ends each watch at once.
const reconnect = time.Second

// follow calls seen with each version of an object, and with nil once the object is gone. It returns when seen is done
// or fails. It restarts a watch that ends.
func (c *cluster) follow(ctx context.Context, name string, seen func(*v1alpha1.ScheduledMachine) (done bool, err error)) error {
	for {
		m := &v1alpha1.ScheduledMachine{}
		err := c.rest.Get().Namespace(c.namespace).Resource(resource).Name(name).Do(ctx).Into(m)
		switch {
		case apierrors.IsNotFound(err):
			m = nil
		case err != nil:
			return failed("reading "+name, err)
		}
		if done, err := seen(m); done || err != nil {
			return err
		}
		if done, err := c.watch(ctx, m, seen); done || err != nil {
			return err
		}
		again := time.NewTimer(reconnect)
		select {
		case <-ctx.Done():
			return failed("watching "+name, ctx.Err())
		case <-again.C:
		}
	}
}

// watch runs one watch for follow. It returns false if the server ends the watch.
func (c *cluster) watch(ctx context.Context, m *v1alpha1.ScheduledMachine, seen func(*v1alpha1.ScheduledMachine) (bool, error)) (bool, error) {
	w, err := c.rest.Get().Namespace(m.Namespace).Resource(resource).Param("watch", "true").
		Param("fieldSelector", "metadata.name="+m.Name).Param("resourceVersion", m.ResourceVersion).Watch(ctx)
	if err != nil {
		return false, failed("watching "+m.Name, err)
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		newer, ok := event.Object.(*v1alpha1.ScheduledMachine)
		if !ok { // an error event, for example for a resource version that is too old
			return false, nil
		}
		if event.Type == watch.Deleted {
			newer = nil
		}
		if done, err := seen(newer); done || err != nil {
			return done, err
		}
	}
	return false, nil
}
