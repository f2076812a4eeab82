// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"context"
	"net"
	"net/http"
)

// DialWith replaces the client's dial function.
func (c *Client) DialWith(dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	c.http(false).Transport.(*http.Transport).DialContext = dial //nolint:forcetypeassert // newHTTPClient made it.
}
