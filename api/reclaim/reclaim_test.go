// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestRequested(t *testing.T) {
	cases := map[string]struct {
		reason string
		in     map[string]string
		want   bool
	}{
		"Literal":       {"The one value that counts.", map[string]string{RequestedAnnotation: "true"}, true},
		"Absent":        {"No annotation, no request.", map[string]string{ReasonAnnotation: "process-match: java"}, false},
		"NoAnnotations": {"A Node without annotations has no request.", nil, false},
		"False":         {"A refusal is not a request.", map[string]string{RequestedAnnotation: "false"}, false},
		"Zero":          {"Numbers are not the literal.", map[string]string{RequestedAnnotation: "0"}, false},
		"One":           {"Numbers are not the literal.", map[string]string{RequestedAnnotation: "1"}, false},
		"Empty":         {"A half-written request does not eject.", map[string]string{RequestedAnnotation: ""}, false},
		"Capital":       {"Case counts.", map[string]string{RequestedAnnotation: "True"}, false},
		"Yes":           {"Synonyms do not count.", map[string]string{RequestedAnnotation: "yes"}, false},
		"LeadingBlank":  {"Nothing is trimmed.", map[string]string{RequestedAnnotation: " true"}, false},
		"TrailingBlank": {"Nothing is trimmed.", map[string]string{RequestedAnnotation: "true "}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Requested(tc.in); got != tc.want {
				t.Errorf("%s\nRequested(%v) = %v, want %v", tc.reason, tc.in, got, tc.want)
			}
		})
	}
}

func TestNames(t *testing.T) {
	got := []string{ConfigMapName("ws-01"), Reason("java")}
	if want := []string{"reclaim-agent-ws-01", "process-match: java"}; !slices.Equal(got, want) {
		t.Errorf("Names are a contract with the agent: %q, want %q", got, want)
	}
}

// TestConfigMapNameOfALongNode has Nodes on both sides of the limit.
func TestConfigMapNameOfALongNode(t *testing.T) {
	node := strings.Repeat("n", maxName)
	fits, long := node[:maxName-len("reclaim-agent-")], node[:maxName-len("reclaim-agent-")+1]
	if got := ConfigMapName(fits); got != "reclaim-agent-"+fits {
		t.Errorf("a name that fits is unchanged: %s", got)
	}
	const want = "reclaim-agent.0c441b636731dbd5e6f7c8790289d3c098b457993a6639d31b4e4f64e5097c31"
	if got := ConfigMapName(long); got != want {
		t.Errorf("Names are a contract with the agent: %s, want %s", got, want)
	}
	if ConfigMapName(node) == ConfigMapName(long) {
		t.Error("two Nodes have one name")
	}
}

func TestText(t *testing.T) {
	cases := map[string]struct {
		reason string
		in     Config
		want   string
	}{
		"Inert": {
			reason: "An empty Config has all keys, so that it is distinct from a lost one.",
			want:   "match_commands = []\nmatch_argv_substrings = []\npoll_interval_ms = 250\n",
		},
		"KillIfCommandsFillBoth": {
			reason: "A command is compared with the name and with the arguments.",
			in:     ConfigFor([]string{"java", "", "idea"}),
			want:   "match_commands = [\"java\", \"idea\"]\nmatch_argv_substrings = [\"java\", \"idea\"]\npoll_interval_ms = 250\n",
		},
		"EscapesWhatTOMLWants": {
			reason: "Quotes, backslashes and control characters are escaped.",
			in:     Config{MatchCommands: []string{"a\"b\\c\n\x00\x7f\tö\xff"}, PollInterval: 5 * time.Millisecond},
			want:   "match_commands = [\"a\\\"b\\\\c\\u000A\\u0000\\u007F\\u0009ö\uFFFD\"]\nmatch_argv_substrings = []\npoll_interval_ms = 5\n",
		},
		"IntervalStaysParsable": {
			reason: "The agent must accept the text that the manager writes.",
			in:     Config{PollInterval: time.Hour},
			want:   "match_commands = []\nmatch_argv_substrings = []\npoll_interval_ms = 60000\n",
		},
		"IntervalRoundsUp": {
			reason: "The agent rejects zero milliseconds.",
			in:     Config{PollInterval: time.Microsecond},
			want:   "match_commands = []\nmatch_argv_substrings = []\npoll_interval_ms = 1\n",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, got, _ := strings.Cut(tc.in.Text(), "\n")
			if got != tc.want {
				t.Errorf("%s\nText():\n-%s+%s", tc.reason, tc.want, got)
			}
		})
	}
}

func TestInert(t *testing.T) {
	cases := map[string]struct {
		reason string
		in     Config
		want   bool
	}{
		"Zero":        {"Absent means inert.", Config{}, true},
		"OnlyEmpty":   {"Empty commands are none.", ConfigFor([]string{""}), true},
		"Command":     {"One name is enough.", Config{MatchCommands: []string{"java"}}, false},
		"ArgvPattern": {"One substring is enough.", Config{MatchArgvSubstrings: []string{"java"}}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := tc.in.Inert(); got != tc.want {
				t.Errorf("%s\nInert() = %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}

func TestConfigForDoesNotAlias(t *testing.T) {
	in := []string{"", "java", "idea"}
	c := ConfigFor(in)
	c.MatchCommands[0] = "changed"
	want := []string{"", "java", "idea"}
	if !slices.Equal(in, want) {
		t.Errorf("The caller's slice belongs to a spec in a cache: %q, want %q", in, want)
	}
	if c.MatchArgvSubstrings[0] != "java" {
		t.Errorf("The two lists share memory: %v", c.MatchArgvSubstrings)
	}
}

func TestAgentState(t *testing.T) {
	state := AgentState{Detector: "netlink", Config: ConfigFor([]string{"java"}).Hash()}
	if got, ok := ParseAgentState(state.Text()); !ok || got != state {
		t.Errorf("what is written is read: %v, %t", got, ok)
	}
	if want := "detector=netlink config=8cc5ea17a5931d87"; state.Text() != want {
		t.Errorf("the text is a contract with agents of other versions: %s", state.Text())
	}
	for _, detector := range []string{"netlink", "poll", "none", "blind"} {
		want := AgentState{Detector: detector, Config: state.Config}
		if got, ok := ParseAgentState(want.Text()); !ok || got != want {
			t.Errorf("an agent writes %q: %v, %t", want.Text(), got, ok)
		}
	}
	for _, text := range []string{
		"", "true", "detector=netlink", "detector= config=" + state.Config, "detector=ebpf config=" + state.Config,
		"detector=poll config=", "detector=poll config=" + state.Config[1:], "detector=poll config=" + state.Config + "00",
		"detector=poll config=" + strings.ToUpper(state.Config), state.Text() + " ", "netlink " + state.Config, state.Text() + "\n",
	} {
		if got, ok := ParseAgentState(text); ok {
			t.Errorf("no agent writes %q: %v", text, got)
		}
	}
}

func TestHoldState(t *testing.T) {
	state := HoldState{Pods: 2, Running: 1, CPU: 9 * time.Millisecond, Killed: 1, Memory: 180 * time.Millisecond}
	if want := "pods=2 running=1 cpu_ms=9 killed=1 memory_ms=180"; state.Text() != want {
		t.Errorf("the text is a contract with the admission policy: %s", state.Text())
	}
	for _, want := range []HoldState{state, {}, {Unavailable: "the host has\n\"cgroup v1\""}} {
		if got, ok := ParseHoldState(want.Text()); !ok || got != want {
			t.Errorf("ParseHoldState(%q) = %v, %t", want.Text(), got, ok)
		}
	}
	for _, text := range []string{
		"", "pods=2 cpu_ms=9 killed=1 memory_ms=180", "pods=3000000000 running=0 cpu_ms=0 killed=0 memory_ms=0", strings.Replace(state.Text(), "running=1", "running=-1", 1), state.Text() + " ",
		"unavailable=", `unavailable=""`, "unavailable=soon",
	} {
		if got, ok := ParseHoldState(text); ok {
			t.Errorf("ParseHoldState(%q) = %v, want an error", text, got)
		}
	}
}

func TestHash(t *testing.T) {
	java := ConfigFor([]string{"java"})
	if ConfigFor([]string{"java", ""}).Hash() != java.Hash() {
		t.Error("an empty pattern makes no difference")
	}
	for name, other := range map[string]Config{
		"OtherCommand": ConfigFor([]string{"idea"}), "Inert": {}, "OneList": {MatchCommands: []string{"java"}},
		"OtherOrder": ConfigFor([]string{"java", "idea"}), "Interval": {MatchCommands: java.MatchCommands, MatchArgvSubstrings: java.MatchArgvSubstrings, PollInterval: time.Second},
	} {
		if other.Hash() == java.Hash() {
			t.Errorf("%s: another configuration has the same hash", name)
		}
	}
}
