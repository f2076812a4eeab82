// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
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

// HoldState is what an agent reports about its [Hold].
type HoldState struct {
	// Unavailable is why the agent cannot hold pods, in at most 256 characters: for example that the host has cgroup v1.
	// Then all other fields are zero.
	Unavailable string
	// Pods is the number of pods that were frozen.
	Pods int32
	// Running is the number of pods that were not frozen in time, and go on using the CPU.
	Running int32
	// CPU is the time from the match until all of these pods were frozen. The agent reports whole milliseconds.
	CPU time.Duration
	// Killed is the number of pods that were killed and have no process any more.
	Killed int32
	// Memory is the time from the match until the last process of a killed pod was gone. Zero means that none was killed.
	Memory time.Duration
}

// holdFormat is the format of [HoldAnnotation], unless the agent cannot hold pods.
const holdFormat = "pods=%d running=%d cpu_ms=%d killed=%d memory_ms=%d"

// Text returns s as the value of [HoldAnnotation].
func (s HoldState) Text() string {
	if s.Unavailable != "" {
		return "unavailable=" + strconv.Quote(s.Unavailable)
	}
	return fmt.Sprintf(holdFormat, s.Pods, s.Running, s.CPU.Milliseconds(), s.Killed, s.Memory.Milliseconds())
}

// ParseHoldState parses a value of [HoldAnnotation]. ok is false, and s has no meaning, for every text that Text does
// not produce.
func ParseHoldState(text string) (s HoldState, ok bool) {
	if quoted, found := strings.CutPrefix(text, "unavailable="); found {
		why, err := strconv.Unquote(quoted)
		s = HoldState{Unavailable: why}
		return s, err == nil && why != "" && len(why) <= maxUnavailable && s.Text() == text
	}
	var cpu, memory int64
	_, err := fmt.Sscanf(text, holdFormat, &s.Pods, &s.Running, &cpu, &s.Killed, &memory)
	s.CPU, s.Memory = time.Duration(cpu)*time.Millisecond, time.Duration(memory)*time.Millisecond
	negative := s.Pods < 0 || s.Running < 0 || s.CPU < 0 || s.Killed < 0 || s.Memory < 0
	return s, err == nil && !negative && s.Text() == text
}

// maxUnavailable is the longest HoldState.Unavailable in bytes.
const maxUnavailable = 256

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

// ParseAgentState parses a value of [StateAnnotation]. ok is false, and s has no meaning, for every text that Text does
// not produce.
func ParseAgentState(text string) (s AgentState, ok bool) {
	detector, config, _ := strings.Cut(text, " ")
	s.Detector = strings.TrimPrefix(detector, "detector=")
	s.Config = strings.TrimPrefix(config, "config=")
	known := slices.Contains([]string{"netlink", "poll", NoDetector, BlindDetector}, s.Detector)
	sum, err := hex.DecodeString(s.Config)
	return s, known && err == nil && len(sum) == hashSize && s.Config == hex.EncodeToString(sum) && s.Text() == text
}

// Hash identifies a Config. It covers [Config.Text] without the comment, so a Config that was written and parsed has
// the same hash.
func (c Config) Hash() string {
	sum := sha256.Sum256([]byte(c.body()))
	return hex.EncodeToString(sum[:hashSize])
}
