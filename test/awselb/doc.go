// SPDX-License-Identifier: Apache-2.0

// Package awselb simulates Elastic Load Balancing of AWS. It serves, over HTTP, the seven actions that remove a Node
// from target groups and classic load balancers. The test sets the clock for draining, for delayed visibility of
// writes, and for throttling. Requests and responses are checked against the SDK's types. A parameter that the SDK does
// not know is an error. The SDK reads from a response exactly the state of the model.
//
// It does not check signatures, except that there is one for the region.
package awselb
