// SPDX-License-Identifier: Apache-2.0

// Package clip answers one question: what of a text fits into the API? What other
// programs say is carried over into messages, and they may say a lot.
package clip

import "strings"

// maxMessage is the bound of status.message and of a condition's message, in
// bytes; the API counts characters, which are never more.
const maxMessage = 10240

// Message keeps a message inside the API's bound.
func Message(message string) string { return To(message, maxMessage) }

// To cuts s to at most size bytes, between characters.
func To(s string, size int) string {
	const more = " …"
	if len(s) <= size {
		return s
	}
	return strings.ToValidUTF8(s[:size-len(more)], "") + more
}
