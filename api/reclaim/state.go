// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// StateAnnotation of a Node holds the [AgentState] that its agent reports. The agent writes it on a change, but not
// while a request is on the Node. It is used only to show people whether the agent detects their programs.
const StateAnnotation = "5spot.finos.org/reclaim-agent"

const (
	// NoDetector is the detector of an agent whose configuration has no patterns.
	NoDetector = "none"
	// BlindDetector is the detector of an agent that cannot read the processes of other users.
	BlindDetector = "blind"
)

// hashSize is the length of a configuration hash in bytes. It must distinguish the configurations of one machine only.
const hashSize = 8

// AgentState is the state that an agent reports about itself.
type AgentState struct {
	// Detector is how the agent detects processes: netlink, poll, [NoDetector] or [BlindDetector].
	Detector string
	// Config is the [Config.Hash] of the agent's configuration.
	Config string
}

// Text returns s as the value of [StateAnnotation].
func (s AgentState) Text() string {
	return fmt.Sprintf("detector=%s config=%s", s.Detector, s.Config)
}

// ParseAgentState parses a value of [StateAnnotation]. ok is false for every text that Text does not produce.
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

// Hash identifies a Config. It covers [Config.Text] without the comment, so a Config that was written and parsed has
// the same hash.
func (c Config) Hash() string {
	sum := sha256.Sum256([]byte(c.body()))
	return hex.EncodeToString(sum[:hashSize])
}
