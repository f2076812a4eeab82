// SPDX-License-Identifier: Apache-2.0

package hookclient

import (
	"context"
	"net"
	"net/http"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// DialWith makes the client of an extension use another dial function.
func (c *Client) DialWith(hook *v1alpha1.MachineDeletionHook, dial func(ctx context.Context, network, address string) (net.Conn, error)) error {
	client, err := c.clientFor(hook)
	if err != nil {
		return err
	}
	client.Transport.(*http.Transport).DialContext = dial //nolint:forcetypeassert // newClient made it.
	return nil
}
