// SPDX-License-Identifier: Apache-2.0

package eviction

import "context"

// Evict decides as the guard does: from the cache if there is one and that suffices, else live.
func (e *Evictor) Evict(ctx context.Context, w Attempt) (Response, error) {
	if e.Cache == nil {
		return e.EvictLive(ctx, w)
	}
	if resp, known, err := e.EvictCached(ctx, w); known == Decided || err != nil {
		return resp, err
	}
	return e.EvictLive(ctx, w)
}
