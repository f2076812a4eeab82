// SPDX-License-Identifier: Apache-2.0

// Package fleet tests outages of a provider's API. 50 machines run when the manager restarts, and the provider's
// objects cannot be read, in several ways. An unreadable object must not count as absent. It has its own plane, because
// each outage affects everything on it.
package fleet
