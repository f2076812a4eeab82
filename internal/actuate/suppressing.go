// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"context"
	"encoding/json"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// suppressing is a client that reads and does not write. It embeds no writing interface: a write method in a
// new release of controller-runtime fails to compile instead of being sent.
type suppressing struct {
	client.Reader
	about about
	gate  *Gate
}

// about has the methods of a client that concern types.
type about interface {
	Scheme() *runtime.Scheme
	RESTMapper() meta.RESTMapper
	GroupVersionKindFor(obj runtime.Object) (schema.GroupVersionKind, error)
	IsObjectNamespaced(obj runtime.Object) (bool, error)
	Status() client.SubResourceWriter
}

func (s suppressing) Scheme() *runtime.Scheme     { return s.about.Scheme() }
func (s suppressing) RESTMapper() meta.RESTMapper { return s.about.RESTMapper() }

func (s suppressing) GroupVersionKindFor(obj runtime.Object) (schema.GroupVersionKind, error) {
	return s.about.GroupVersionKindFor(obj)
}

func (s suppressing) IsObjectNamespaced(obj runtime.Object) (bool, error) {
	return s.about.IsObjectNamespaced(obj)
}

func (s suppressing) Create(context.Context, client.Object, ...client.CreateOption) error {
	return s.gate.refusal()
}

func (s suppressing) Delete(context.Context, client.Object, ...client.DeleteOption) error {
	return s.gate.refusal()
}

func (s suppressing) Update(context.Context, client.Object, ...client.UpdateOption) error {
	return s.gate.refusal()
}

func (s suppressing) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	return s.gate.refusal()
}

func (s suppressing) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	return s.gate.refusal()
}

func (s suppressing) DeleteAllOf(context.Context, client.Object, ...client.DeleteAllOfOption) error {
	return s.gate.refusal()
}

func (s suppressing) Status() client.SubResourceWriter { return suppressingStatus(s) }

func (s suppressing) SubResource(string) client.SubResourceClient { return suppressingPart(s) }

// suppressingStatus writes the status of ScheduledMachines without its phase, if the Gate permits that.
type suppressingStatus suppressing

func (s suppressingStatus) Create(context.Context, client.Object, client.Object, ...client.SubResourceCreateOption) error {
	return s.gate.refusal()
}

func (s suppressingStatus) Update(context.Context, client.Object, ...client.SubResourceUpdateOption) error {
	return s.gate.refusal()
}

func (s suppressingStatus) Apply(context.Context, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
	return s.gate.refusal()
}

func (s suppressingStatus) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	if _, ours := obj.(*v1alpha1.ScheduledMachine); !ours || !s.gate.showsStatus() || patch.Type() != types.MergePatchType {
		return s.gate.refusal()
	}
	body, err := patch.Data(obj)
	if err != nil {
		return err
	}
	if movesPhase(body) {
		return s.gate.refusal()
	}
	return s.about.Status().Patch(ctx, obj, patch, opts...)
}

// movesPhase reports whether a merge patch may change status.phase. It returns true for a patch that cannot be
// parsed.
func movesPhase(patch []byte) bool {
	var body struct {
		Status map[string]json.RawMessage `json:"status"`
	}
	if err := json.Unmarshal(patch, &body); err != nil {
		return true
	}
	_, moves := body.Status["phase"]
	return moves
}

// suppressingPart rejects access to other subresources. No code uses them through this client: see EvictPod for
// evictions.
type suppressingPart suppressing

func (s suppressingPart) Get(context.Context, client.Object, client.Object, ...client.SubResourceGetOption) error {
	return s.gate.refusal()
}

func (s suppressingPart) Create(context.Context, client.Object, client.Object, ...client.SubResourceCreateOption) error {
	return s.gate.refusal()
}

func (s suppressingPart) Update(context.Context, client.Object, ...client.SubResourceUpdateOption) error {
	return s.gate.refusal()
}

func (s suppressingPart) Patch(context.Context, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
	return s.gate.refusal()
}

func (s suppressingPart) Apply(context.Context, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
	return s.gate.refusal()
}
