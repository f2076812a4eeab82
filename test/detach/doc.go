// SPDX-License-Identifier: Apache-2.0

// Package detach answers one question: does a machine leave a real load balancer without harm
// to its clients, and give back what it took?
package detach
