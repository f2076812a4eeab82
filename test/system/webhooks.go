// SPDX-License-Identifier: Apache-2.0

package system

import (
	"context"
	"errors"
	"slices"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
)

// WithoutWebhooks runs f while the API server calls no webhook for 5-Spot's objects. probe is a ScheduledMachine that
// could be created.
func (s *System) WithoutWebhooks(ctx context.Context, probe *v1alpha1.ScheduledMachine, f func()) (err error) {
	list := &admissionv1.ValidatingWebhookConfigurationList{}
	if err := s.Management.Client.List(ctx, list); err != nil {
		return err
	}
	for i := range list.Items {
		config := &list.Items[i]
		if !guards(config, v1alpha1.GroupVersion.Group) {
			continue
		}
		if err := s.Management.Client.Delete(ctx, config); err != nil {
			return err
		}
		defer func() {
			config.ResourceVersion, config.UID = "", ""
			err = errors.Join(err, s.Management.Client.Create(ctx, config))
		}()
	}
	// The API server applies the change a moment later.
	probe.Spec.Schedule.DaysOfWeek = []string{"never"}
	if err := plane.Until(ctx, func(ctx context.Context) error {
		return s.Management.Client.Create(ctx, probe.DeepCopy(), client.DryRunAll)
	}); err != nil {
		return err
	}
	f()
	return nil
}

func guards(config *admissionv1.ValidatingWebhookConfiguration, group string) bool {
	for _, w := range config.Webhooks {
		for _, r := range w.Rules {
			if slices.Contains(r.APIGroups, group) {
				return true
			}
		}
	}
	return false
}
