// SPDX-License-Identifier: Apache-2.0

package ingest_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/ingest"
)

var box = ingest.Host{Node: "n1", ProviderID: "lab://1", MachineID: "m1"}

// with returns box with one change.
func with(change func(*ingest.Host)) ingest.Host {
	h := box
	change(&h)
	return h
}

func reasons(rejected []ingest.Rejection) []ingest.Reason {
	var list []ingest.Reason
	for _, r := range rejected {
		list = append(list, r.Reason)
	}
	return list
}

func TestScreen(t *testing.T) {
	t.Parallel()
	none, long := ingest.Host{}, strings.Repeat("m", ingest.MaxMachineID+1)
	for name, tc := range map[string]struct {
		reason   string
		claim    ingest.Claim
		want     ingest.Host
		rejected []ingest.Reason
	}{
		"First":             {"Nothing speaks against it.", ingest.Claim{Reported: box}, box, nil},
		"Nothing":           {"A Machine that joins has none of it yet.", ingest.Claim{}, none, nil},
		"Same":              {"It was accepted before.", ingest.Claim{Reported: box, Known: box, Running: true}, box, nil},
		"RunningWithout":    {"A Machine that runs has a Node and an ID.", ingest.Claim{Running: true}, none, []ingest.Reason{ingest.NodeRef, ingest.ProviderID}},
		"AnotherNode":       {"Cluster API names a Node once.", ingest.Claim{Reported: with(func(h *ingest.Host) { h.Node = "n2" }), Known: box}, box, []ingest.Reason{ingest.NodeRef}},
		"AnotherNodesHost":  {"What another Node reports is no machine ID of this host.", ingest.Claim{Reported: ingest.Host{Node: "n2", ProviderID: "lab://1", MachineID: "m2"}, Known: box}, box, []ingest.Reason{ingest.NodeRef}},
		"NodeTakenOff":      {"What is missing is not gone.", ingest.Claim{Reported: with(func(h *ingest.Host) { h.Node = "" }), Known: box}, box, []ingest.Reason{ingest.NodeRef}},
		"AnotherProviderID": {"A machine stays on its host.", ingest.Claim{Reported: with(func(h *ingest.Host) { h.ProviderID = "lab://2" }), Known: box}, box, []ingest.Reason{ingest.ProviderID}},
		"NoProviderID":      {"What is missing is not gone.", ingest.Claim{Reported: with(func(h *ingest.Host) { h.ProviderID = "" }), Known: box}, box, []ingest.Reason{ingest.ProviderID}},
		"SharedNode":        {"It is accepted for no new Machine.", ingest.Claim{Reported: box, NodeOf: "other"}, ingest.Host{ProviderID: "lab://1"}, []ingest.Reason{ingest.NodeRef}},
		"SharedNodeStays":   {"It stays with who had it.", ingest.Claim{Reported: box, Known: box, NodeOf: "other"}, box, nil},
		"SharedProviderID":  {"It is accepted for no new Machine.", ingest.Claim{Reported: box, ProviderIDOf: "other"}, with(func(h *ingest.Host) { h.ProviderID = "" }), []ingest.Reason{ingest.ProviderID}},
		"SharedIDStays":     {"It stays with who had it.", ingest.Claim{Reported: box, Known: box, ProviderIDOf: "other"}, box, nil},
		"AnotherMachineID":  {"The first answer counts.", ingest.Claim{Reported: with(func(h *ingest.Host) { h.MachineID = "m2" }), Known: box}, box, []ingest.Reason{ingest.MachineID}},
		"NoMachineID":       {"A Node that says nothing says nothing else.", ingest.Claim{Reported: with(func(h *ingest.Host) { h.MachineID = "" }), Known: box}, box, nil},
		"LongMachineID":     {"No machine ID is as long.", ingest.Claim{Reported: with(func(h *ingest.Host) { h.MachineID = long })}, with(func(h *ingest.Host) { h.MachineID = "" }), []ingest.Reason{ingest.MachineID}},
		"MachineIDComes":    {"It is known later than the Node.", ingest.Claim{Reported: box, Known: with(func(h *ingest.Host) { h.MachineID = "" })}, box, nil},
		"MachineIDOfNoNode": {"Without a Node it applies to no host.", ingest.Claim{Reported: ingest.Host{MachineID: "m1"}}, none, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.claim.Name = "box-machine"
			got, rejected := ingest.Screen(tc.claim)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.rejected, reasons(rejected)); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
			for _, r := range rejected {
				if !strings.HasPrefix(r.Message, "Machine box-machine: ") || !strings.Contains(r.Message, ": ") {
					t.Errorf("it does not say of which Machine: %q", r.Message)
				}
			}
		})
	}
}

// draw draws a host from few values, so that many are equal.
func draw(t *rapid.T, name string) ingest.Host {
	of := func(field string) string {
		return rapid.SampledFrom([]string{"", "a", "b", strings.Repeat("c", ingest.MaxMachineID+1)}).Draw(t, name+field)
	}
	return ingest.Host{Node: of("node"), ProviderID: of("provider"), MachineID: of("machine")}
}

func drawClaim(t *rapid.T) ingest.Claim {
	who := rapid.SampledFrom([]string{"", "other"})
	return ingest.Claim{
		Name: "m", Reported: draw(t, "says"), Known: draw(t, "known"), Running: rapid.Bool().Draw(t, "running"),
		NodeOf: who.Draw(t, "node of"), ProviderIDOf: who.Draw(t, "id of"),
	}
}

// TestWhatIsKnownStays checks that a known value stays in effect, whatever any Machine reports later.
func TestWhatIsKnownStays(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawClaim(t)
		got, _ := ingest.Screen(c)
		if c.Known.Node != "" && got.Node != c.Known.Node || c.Known.ProviderID != "" && got.ProviderID != c.Known.ProviderID {
			t.Fatalf("%+v is accepted as %+v", c, got)
		}
		if c.Known.Node != "" && c.Known.MachineID != "" && got.MachineID != c.Known.MachineID {
			t.Fatalf("%+v is accepted as %+v", c, got)
		}
	})
}

// TestWhatDiffersIsRejected checks that every report is either accepted or rejected. An accepted value was
// reported or known.
func TestWhatDiffersIsRejected(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawClaim(t)
		got, rejected := ingest.Screen(c)
		for _, f := range []struct {
			reason           ingest.Reason
			says, known, got string
		}{
			{ingest.NodeRef, c.Reported.Node, c.Known.Node, got.Node},
			{ingest.ProviderID, c.Reported.ProviderID, c.Known.ProviderID, got.ProviderID},
		} {
			if reported := slices.Contains(reasons(rejected), f.reason); reported != (f.says != f.got || f.says == "" && c.Running) {
				t.Fatalf("%+v is accepted as %+v, and %s is reported: %t", c, got, f.reason, reported)
			}
			if f.got != "" && f.got != f.says && f.got != f.known {
				t.Fatalf("%+v is accepted as %+v", c, got)
			}
		}
	})
}

// TestScreenIsStable checks that screening an accepted value again changes nothing.
func TestScreenIsStable(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawClaim(t)
		first, reported := ingest.Screen(c)
		if c.Known, _ = ingest.Screen(c); c.Known != first {
			t.Fatal("the same is not screened the same way")
		}
		second, again := ingest.Screen(c)
		if second != first || !slices.Equal(reasons(again), reasons(reported)) {
			t.Fatalf("%+v: %+v, then %+v", c, first, second)
		}
	})
}

// TestASharedHostIsAcceptedForNoNewMachine checks Machines that report the same host: only a Machine that had it before
// keeps it.
func TestASharedHostIsAcceptedForNoNewMachine(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		had := rapid.SliceOfN(rapid.Bool(), 2, 4).Draw(t, "had it")
		for _, h := range had {
			c := ingest.Claim{Name: "m", Reported: box, NodeOf: "other", ProviderIDOf: "other"}
			if h {
				c.Known = box
			}
			got, rejected := ingest.Screen(c)
			if (got.Node != "") != h || (got.ProviderID != "") != h || (len(rejected) == 0) != h {
				t.Fatalf("had it: %t; is accepted as %+v", h, got)
			}
		}
	})
}

func TestScreenRequest(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason  string
		request ingest.Request
		says    []string
	}{
		"None":        {"Most Nodes ask for nothing.", ingest.Request{}, nil},
		"Agents":      {"An agent writes it so.", ingest.Request{Requested: true, Marked: true, Trigger: "true", Reason: "process-match: steam", RequestedAt: "2026-03-02T17:00:00Z"}, nil},
		"AnotherWord": {"A person is to see why nothing happens.", ingest.Request{Marked: true, Trigger: "True"}, []string{`reclaim-requested is "True", which is no request: to request the machine write "true"`}},
		"Empty":       {"As is nothing.", ingest.Request{Marked: true}, []string{`reclaim-requested is ""`}},
		"LongReason":  {"It is cut.", ingest.Request{Requested: true, Marked: true, Reason: strings.Repeat("ä", 257)}, []string{"reclaim-reason has 257 characters"}},
		"FullReason":  {"It is as long as a pattern may be.", ingest.Request{Requested: true, Marked: true, Reason: strings.Repeat("ä", 256)}, nil},
		"Control":     {"A Node cannot add lines to our Events.", ingest.Request{Requested: true, Marked: true, Reason: "a\nb"}, []string{"reclaim-reason has invisible characters"}},
		"NoText":      {"It is no UTF-8.", ingest.Request{Requested: true, Marked: true, Reason: "\xff"}, []string{"reclaim-reason has invisible characters"}},
		"Hold":        {"Its text is not shown.", ingest.Request{Requested: true, Marked: true, Hold: "soon", HoldUnreadable: true}, []string{`reclaim-hold is "soon", which no agent writes`}},
		"NoTime":      {"The time of its writing counts.", ingest.Request{Requested: true, Marked: true, RequestedAt: "soon"}, []string{`reclaim-requested-at is "soon"`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.request.Node = "n1"
			got := ingest.ScreenRequest(tc.request)
			if len(got) != len(tc.says) {
				t.Fatalf("%s\ngot %v, want %q", tc.reason, got, tc.says)
			}
			for i, r := range got {
				if r.Reason != ingest.Annotation || !strings.Contains(r.Message, tc.says[i]) || !strings.HasPrefix(r.Message, "Node n1: ") {
					t.Errorf("%s\ngot %v, want %q", tc.reason, r, tc.says[i])
				}
			}
		})
	}
}
