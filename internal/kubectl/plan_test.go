// SPDX-License-Identifier: Apache-2.0

package kubectl_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const office = `apiVersion: 5spot.finos.org/v1alpha1
kind: ScheduledMachine
metadata:
  name: office
spec:
  clusterName: prod
  schedule:
    daysOfWeek: [mon-fri]
    hoursOfDay: ["9-17"]
    timezone: America/New_York
`

const officePlan = `office: mon-fri 9-17, America/New_York
  Wed 2025-01-15 12:00:00 EST  inside the window
  Wed 2025-01-15 18:00:00 EST  closes
`

func TestPlanReadsFiles(t *testing.T) {
	t.Parallel()
	night := strings.NewReplacer("office", "night", "9-17", "22-6").Replace(office)
	const nightPlan = `night: mon-fri 22-6, America/New_York
  Wed 2025-01-15 12:00:00 EST  outside the window
  Wed 2025-01-15 22:00:00 EST  opens
  Thu 2025-01-16 07:00:00 EST  closes
`
	const object = `{"apiVersion":"5spot.finos.org/v1alpha1","kind":"ScheduledMachine","metadata":{"name":"office"},` +
		`"spec":{"schedule":{"daysOfWeek":["mon-fri"],"hoursOfDay":["9-17"],"timezone":"America/New_York"}}}`
	cases := map[string]struct {
		reason string
		stdin  string
		args   []string
		want   string
	}{
		"YAML": {reason: "The common case.", stdin: office, want: officePlan},
		"JSON": {reason: "kubectl get -o json writes it.", stdin: object, want: officePlan},
		"Documents": {
			reason: "A comment, an empty document and other kinds are no obstacle.",
			stdin:  "# all of it\n---\n---\nkind: ConfigMap\napiVersion: v1\nmetadata: {name: x}\n--- # ours\n" + office + "---\n" + night,
			want:   officePlan + "\n" + nightPlan,
		},
		"JSONStream": {reason: "jq writes objects one after another.", stdin: object + "\n" + object, want: officePlan + "\n" + officePlan},
		"List": {
			reason: "kubectl get -o yaml of several objects.",
			stdin:  "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Pod}\n- " + object + "\n",
			want:   officePlan,
		},
		"TypedList": {
			reason: "The API itself leaves out the kinds of the items.",
			stdin: `{"apiVersion":"5spot.finos.org/v1alpha1","kind":"ScheduledMachineList","items":[` +
				strings.Replace(object, `"apiVersion":"5spot.finos.org/v1alpha1","kind":"ScheduledMachine",`, "", 1) + `]}`,
			want: officePlan,
		},
		"Defaults": {
			reason: "Absent is what the API would make of it: UTC and enabled.",
			stdin:  strings.Replace(office, "    timezone: America/New_York\n", "", 1),
			want: `office: mon-fri 9-17, UTC
  Wed 2025-01-15 17:00:00 UTC  inside the window
  Wed 2025-01-15 18:00:00 UTC  closes
  Thu 2025-01-16 09:00:00 UTC  opens
`,
		},
		"Disabled": {
			reason: "Disabled in the file is disabled in the plan.",
			stdin:  office + "    enabled: false\n",
			want: `office: mon-fri 9-17, America/New_York
  Wed 2025-01-15 12:00:00 EST  disabled: nothing is started, and an existing machine stays
`,
		},
		"KillSwitch": {
			reason: "The plan says that it has no effect.",
			stdin:  office + "  killSwitch: true\n",
			want:   officePlan + "  the kill switch is on: no machine runs in any window\n",
		},
		"NoName": {
			reason: "kubectl create would give it one.",
			stdin:  strings.Replace(office, "name: office", "generateName: office-", 1),
			want:   strings.Replace(officePlan, "office:", "office-(no name):", 1),
		},
		"RepeatedKeysElsewhere": {
			reason: "Other objects are not ours to judge.",
			stdin:  "kind: Pod\nkind: Pod\n---\n" + office,
			want:   officePlan,
		},
		"WindowsLines": {reason: "Files travel.", stdin: strings.ReplaceAll("---\n"+office, "\n", "\r\n"), want: officePlan},
		"At": {
			reason: "Any zone will do to say when.", stdin: office,
			args: []string{"--at", "2025-01-16T00:00:00+01:00"},
			want: `office: mon-fri 9-17, America/New_York
  Wed 2025-01-15 18:00:00 EST  outside the window
  Thu 2025-01-16 09:00:00 EST  opens
`,
		},
		"ForNothing": {
			reason: "Zero asks only about now.", stdin: office,
			args: []string{"--for", "0s"},
			want: `office: mon-fri 9-17, America/New_York
  Wed 2025-01-15 12:00:00 EST  inside the window
  Wed 2025-01-15 12:00:00 EST  no change until then
`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"plan", "-f", "-", "--for", "20h"}, tc.args...)
			if diff := cmp.Diff(result{Out: tc.want}, run(tc.stdin, args...)); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestPlanRefusesFiles(t *testing.T) {
	t.Parallel()
	in := func(was, is string) string { return strings.Replace(office, was, is, 1) }
	cases := map[string]struct {
		reason string
		stdin  string
		want   string
	}{
		"Unreadable": {
			reason: "Path, value, what is wrong, what would be right.",
			stdin:  in(`"9-17"`, `"9:30"`),
			want:   "error: office: spec.schedule.hoursOfDay[0]: Invalid value: \"9:30\": Failed to parse hours: Invalid hour: 9:30; hours are 0-23, a range is 9-17\n",
		},
		"AllOfThem": {
			reason: "One run tells everything about every machine.",
			stdin:  in("mon-fri", "monday") + "---\n" + in("America/New_York", "Mars"),
			want: "error: office: spec.schedule.daysOfWeek[0]: Invalid value: \"monday\": Failed to parse weekdays: Invalid day: monday; days are mon, tue, wed, thu, fri, sat, sun, a range is mon-fri\n" +
				"error: office: spec.schedule.timezone: Invalid value: \"Mars\": Invalid timezone: Mars; use a name of the IANA time zone database, such as UTC or Europe/Zurich\n",
		},
		"EmptyZone": {
			reason: "Only an absent zone has a default.",
			stdin:  in("America/New_York", `""`),
			want:   "error: office: spec.schedule.timezone: Invalid value: \"\": Invalid timezone: ; use a name of the IANA time zone database, such as UTC or Europe/Zurich\n",
		},
		"Number": {
			reason: "To YAML a single hour is a number.",
			stdin:  in(`"9-17"`, "9"),
			want:   "error: office: spec.schedule.hoursOfDay: Invalid value: number, want string: put it in quotes\n",
		},
		"NoList": {
			reason: "The same mistake one level up.",
			stdin:  in("[mon-fri]", "mon-fri"),
			want:   "error: office: spec.schedule.daysOfWeek: Invalid value: string, want []string\n",
		},
		"UnknownField": {
			reason: "A misspelt field would silently mean never.",
			stdin:  in("hoursOfDay", "hours"),
			want:   "error: office: unknown field \"spec.schedule.hours\"; spec.schedule has daysOfWeek, hoursOfDay, timezone and enabled\n",
		},
		"WrongCase": {
			reason: "The API knows case, too.",
			stdin:  in("timezone", "timeZone"),
			want:   "error: office: unknown field \"spec.schedule.timeZone\"; spec.schedule has daysOfWeek, hoursOfDay, timezone and enabled\n",
		},
		"RepeatedField": {
			reason: "One of the two would be ignored.",
			stdin:  office + "    timezone: UTC\n",
			want:   "error: -, document 1: yaml: unmarshal errors:\nerror:   line 11: key \"timezone\" already set in map\n",
		},
		"RepeatedFieldInJSON": {
			reason: "In JSON, too.",
			stdin:  `{"apiVersion":"5spot.finos.org/v1alpha1","kind":"ScheduledMachine","metadata":{"name":"x"},"spec":{"schedule":{"timezone":"UTC","timezone":"UTC"}}}`,
			want:   "error: -, document 1: yaml: unmarshal errors:\nerror:   line 1: key \"timezone\" already set in map\n",
		},
		"NoSchedule": {
			reason: "The API requires one.",
			stdin:  "apiVersion: 5spot.finos.org/v1alpha1\nkind: ScheduledMachine\nmetadata: {name: office}\nspec: {}\n",
			want:   "error: office: spec.schedule: Required value\n",
		},
		"OtherVersion": {
			reason: "Guessing at another version would be worse than nothing.",
			stdin:  in("v1alpha1", "v1beta1"),
			want:   "error: -, document 1: apiVersion: 5spot.finos.org/v1beta1 is not known to this program, only 5spot.finos.org/v1alpha1\n",
		},
		"NoneInIt": {
			reason: "An empty plan would look like good news.",
			stdin:  "kind: Pod\napiVersion: v1\n",
			want:   "error: -: contains no ScheduledMachine of 5spot.finos.org/v1alpha1\n",
		},
		"Empty":   {reason: "Nor is nothing a plan.", want: "error: -: contains no ScheduledMachine of 5spot.finos.org/v1alpha1\n"},
		"NotYAML": {reason: "The error names the document.", stdin: office + "---\n{{ .Values }}: [\n", want: "error: -, document 2: yaml: line 1: did not find expected node content\n"},
		"TwoOnALine": {
			reason: "kubectl refuses such a separator as well.",
			stdin:  "--- x\n" + office,
			want:   "error: -: reading YAML: invalid Yaml document separator: x\n",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(result{Err: tc.want, Code: 2}, run(tc.stdin, "plan", "-f", "-")); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestPlanReadsSeveralFiles(t *testing.T) {
	t.Parallel()
	a := file(t, "a.yaml", office)
	b := file(t, "b.yaml", strings.Replace(office, "office", "other", 1))
	want := officePlan + "\n" + strings.Replace(officePlan, "office", "other", 1)
	if diff := cmp.Diff(result{Out: want}, run("", "plan", "-f", a, "-f", b, "--for", "20h")); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	if got := run("", "plan", "-f", "/does/not/exist"); got.Code != 2 || !strings.Contains(got.Err, "/does/not/exist") {
		t.Errorf("absent file: %+v", got)
	}
}

func TestPlanReadsTheCluster(t *testing.T) {
	t.Parallel()
	config := cluster(t, map[string]any{
		"/apis/5spot.finos.org/v1alpha1/namespaces/farm/scheduledmachines/office": machine("office"),
		"/apis/5spot.finos.org/v1alpha1/namespaces/barn/scheduledmachines/office": machine("office", unreadable),
	})
	if diff := cmp.Diff(result{Out: officePlan}, run("", "plan", "office", "--for", "20h", config)); diff != "" {
		t.Errorf("the kubeconfig's namespace: -want, +got:\n%s", diff)
	}
	want := result{Code: 2, Err: "error: office: spec.schedule.hoursOfDay[0]: Invalid value: \"25\": Failed to parse hours: Hour must be 0-23, got: 25; hours are 0-23, a range is 9-17\n"}
	if diff := cmp.Diff(want, run("", "plan", "office", "-n", "barn", config)); diff != "" {
		t.Errorf("the flag's namespace: -want, +got:\n%s", diff)
	}
}

func FuzzPlanReadsAnything(f *testing.F) {
	f.Add(office)
	f.Add(office + "---\n" + office)
	f.Add(`{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"5spot.finos.org/v1alpha1","kind":"ScheduledMachine","spec":{"schedule":null}}]}`)
	f.Add("kind: ScheduledMachine\napiVersion: 5spot.finos.org/v1alpha1\nmetadata: 3\nspec: []\n")
	f.Add("a: &a [*a]\n")
	f.Fuzz(func(t *testing.T, text string) {
		got := run(text, "plan", "-f", "-")
		if got.Code == 0 && (got.Out == "" || got.Err != "") || got.Code != 0 && (got.Code != 2 || got.Out != "" || got.Err == "") {
			t.Fatalf("%+v", got)
		}
	})
}
