// SPDX-License-Identifier: Apache-2.0

package kubectl

// WaitHelp exports the advice of why about a deletion that waits.
var WaitHelp = waitHelp
