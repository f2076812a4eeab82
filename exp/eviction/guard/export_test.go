// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
)

// KeepCertificates reconciles a Secret once, as a replica does.
func KeepCertificates(ctx context.Context, live client.Reader, write *actuate.Actuator, c clock.PassiveClock, secret client.ObjectKey, host string) error {
	return (&certificates{live: live, write: write, clock: c, secret: secret, host: host}).reconcile(ctx)
}
