// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// eachItem calls f with every object of a list.
func eachItem(list client.ObjectList, f func(client.Object)) error {
	return meta.EachListItem(list, func(item runtime.Object) error {
		obj, ok := item.(client.Object)
		if !ok {
			return fmt.Errorf("%T is no object", item)
		}
		f(obj)
		return nil
	})
}
