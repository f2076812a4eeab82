// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// StateAnnotation of a Node is what its agent says of itself: an [AgentState]. It is
// written when that changes, and never in the place of a request. It is believed for
// nothing but to tell people whether their owner is heard.
const StateAnnotation = "5spot.finos.org/reclaim-agent"

const (
	// NoDetector is the detector of an agent that has nothing to look for.
	NoDetector = "none"
	// BlindDetector is the detector of an agent that cannot read the processes of other
	// users.
	BlindDetector = "blind"
)

// hashSize is how much of a hash tells two configurations of one machine apart.
const hashSize = 8

// AgentState is what an agent says of itself.
type AgentState struct {
	// Detector is how it finds processes: netlink, poll, [NoDetector] or [BlindDetector].
	Detector string
	// Config is the [Config.Hash] of what it looks for.
	Config string
}

// Text returns s as the value of [StateAnnotation].
func (s AgentState) Text() string {
	return fmt.Sprintf("detector=%s config=%s", s.Detector, s.Config)
}

// ParseAgentState reads a value of [StateAnnotation]. ok is false for any text that
// no agent writes.
func ParseAgentState(text string) (s AgentState, ok bool) {
	detector, config, _ := strings.Cut(text, " ")
	s.Detector = strings.TrimPrefix(detector, "detector=")
	s.Config = strings.TrimPrefix(config, "config=")
	switch s.Detector {
	case "netlink", "poll", NoDetector, BlindDetector:
	default:
		return AgentState{}, false
	}
	sum, err := hex.DecodeString(s.Config)
	if err != nil || len(sum) != hashSize || s.Config != hex.EncodeToString(sum) || s.Text() != text {
		return AgentState{}, false
	}
	return s, true
}

// Hash tells one Config from another. It is of what [Config.Text] says without the
// comment, so a Config that was written down and read again has the same.
func (c Config) Hash() string {
	sum := sha256.Sum256([]byte(c.body()))
	return hex.EncodeToString(sum[:hashSize])
}
