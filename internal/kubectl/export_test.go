// SPDX-License-Identifier: Apache-2.0

package kubectl

// WaitHelp is what why says about a deletion that waits.
var WaitHelp = waitHelp
