// SPDX-License-Identifier: Apache-2.0

// Package awselb answers one question: what would Elastic Load Balancing of AWS answer? It
// serves the seven actions that a Node needs to leave target groups and classic load
// balancers, on the wire. Time is an argument: targets drain, writes become visible and
// requests are throttled by a clock of the test. What is asked and answered is checked
// against the SDK's own types: a parameter that the SDK does not know is an error, and what
// the SDK reads of an answer is what the model holds.
//
// It does not check signatures, only that there is one for the region.
package awselb
