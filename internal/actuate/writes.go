// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"context"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/audit"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/kinds"
)

// The write methods of an Action call the same methods of its Actuator, and write a line to the audit log.

// Create is Actuator.Create. It fails if the response is not the object that was sent.
func (a Action) Create(ctx context.Context, obj client.Object) error {
	return a.write(ctx, create, obj, "", exists, func() (bool, error) {
		want := maps.Clone(obj.GetLabels())
		if err := a.Actuator.Create(ctx, obj); err != nil {
			return true, err
		}
		return true, acknowledged(obj, want)
	})
}

// Apply is Actuator.Apply. It fails if the response is not the object that was sent.
func (a Action) Apply(ctx context.Context, obj *unstructured.Unstructured) error {
	return a.write(ctx, create, obj, "", exists, func() (bool, error) {
		want := maps.Clone(obj.GetLabels())
		if err := a.Actuator.Apply(ctx, obj); err != nil {
			return true, err
		}
		return true, acknowledged(obj, want)
	})
}

// Replace is Actuator.Replace.
func (a Action) Replace(ctx context.Context, obj client.Object) error {
	return a.write(ctx, "update", obj, "", nil, func() (bool, error) { return true, a.Actuator.Replace(ctx, obj) })
}

// Delete is Actuator.Delete.
func (a Action) Delete(ctx context.Context, obj client.Object) error {
	return kinds.IgnoreNoObject(a.write(ctx, remove, obj, "", leaves, func() (bool, error) { return a.delete(ctx, obj) }))
}

// Patch is Actuator.Patch.
func (a Action) Patch(ctx context.Context, obj, before client.Object, opts ...client.PatchOption) error {
	return a.write(ctx, "patch", obj, difference(obj, before), nil, func() (bool, error) { return a.patch(ctx, obj, before, opts...) })
}

// PatchLocked is Actuator.PatchLocked.
func (a Action) PatchLocked(ctx context.Context, obj, before client.Object) error {
	return a.write(ctx, "patch", obj, difference(obj, before), nil, func() (bool, error) { return a.patchLocked(ctx, obj, before) })
}

func (a Action) write(ctx context.Context, verb string, obj client.Object, says string, shows func(client.Object) bool, send func() (bool, error)) error {
	return a.carryOut(ctx, try{
		kind: a.kindOf(audit.Remove), verb: verb, obj: obj, says: says, shows: shows,
		send: func(string) (bool, error) { return send() },
	})
}

// difference returns the content of a patch without the resourceVersion. It returns an empty string if that
// cannot be computed: the write itself fails then.
func difference(obj, before client.Object) string {
	if same(obj, before) {
		return ""
	}
	text, err := client.MergeFrom(before).Data(obj)
	if err != nil {
		return ""
	}
	return string(text)
}
