// SPDX-License-Identifier: Apache-2.0

package installation_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/installation"
)

func TestWhatChangesIsTold(t *testing.T) {
	refused := func(text string) installation.Failure { return installation.Failure{Class: "refused", Text: text} }
	onA := func(f installation.Failure) installation.Outcome {
		return installation.Outcome{Nodes: map[string]installation.Failure{"a": f}}
	}
	other := installation.Failure{Class: "other", Text: "other"}
	lab := client.ObjectKey{Namespace: "farm", Name: "lab"}
	steps := []struct {
		reason  string
		tell    installation.Outcome
		changed bool
		want    installation.Outcome
	}{
		{"The first outcome is news, whatever it is.", installation.Outcome{}, true, installation.Outcome{}},
		{"The same is not.", installation.Outcome{}, false, installation.Outcome{}},
		{"A failure is.", installation.Outcome{Failure: refused("at nine")}, true, installation.Outcome{Failure: refused("at nine")}},
		{"Another text of the same failure is not.", installation.Outcome{Failure: refused("at ten")}, false, installation.Outcome{Failure: refused("at nine")}},
		{"Another failure is.", installation.Outcome{Failure: other}, true, installation.Outcome{Failure: other}},
		{"So is that of a Node.", onA(refused("at nine")), true, onA(refused("at nine"))},
		{"And it keeps its text, too.", onA(refused("at ten")), false, onA(refused("at nine"))},
		{"Its end is news.", installation.Outcome{}, true, installation.Outcome{}},
		{"So is that somebody else installs it.", installation.Outcome{Elsewhere: true}, true, installation.Outcome{Elsewhere: true}},
	}
	b := installation.NewResults()
	if _, ok := b.Outcome(lab); ok {
		t.Error("what nobody has tried has no outcome")
	}
	for _, s := range steps {
		b.Record(lab, s.tell)
		changed := false
		select {
		case e := <-b.Changes():
			changed = client.ObjectKeyFromObject(e.Object) == lab
		default:
		}
		got, _ := b.Outcome(lab)
		if len(got.Nodes) == 0 {
			got.Nodes = nil
		}
		if diff := cmp.Diff(s.want, got); diff != "" || changed != s.changed {
			t.Errorf("%s changed: %t; -want, +got:\n%s", s.reason, changed, diff)
		}
	}
	b.Forget(lab)
	if _, ok := b.Outcome(lab); ok {
		t.Error("what is forgotten has no outcome")
	}
}

func TestAFailureOfTheClusterConcernsEveryNode(t *testing.T) {
	whole, one := installation.Failure{Class: "whole"}, installation.Failure{Class: "one"}
	o := installation.Outcome{Nodes: map[string]installation.Failure{"a": one}}
	if o.Of("a") != one || o.Of("b") != (installation.Failure{}) {
		t.Errorf("that of one Node is its own: %v", o)
	}
	o.Failure = whole
	if o.Of("a") != whole || o.Of("b") != whole {
		t.Errorf("that of the Cluster comes first: %v", o)
	}
}
