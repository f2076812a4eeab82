// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/audit"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/kinds"
)

// errAck reports an answer to a creation that says of no object.
var errAck = errors.New("the API server's answer has no UID: it is not believed")

// outcomeOf is what an error says of a try. A request that nobody waited for to the end was
// answered by nobody.
func (a *Actuator) outcomeOf(err error) audit.Outcome {
	_, answered := errors.AsType[*apierrors.StatusError](err)
	switch {
	case err == nil:
		return audit.Success
	case errors.Is(err, errAck):
		return audit.AckRejected
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return audit.Conflict
	case kinds.NoObject(err):
		return audit.NotFound
	case a.remote && !answered:
		return audit.RemoteUnreachable
	default:
		return audit.APIError
	}
}
