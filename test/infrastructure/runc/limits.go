// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// limits are the fields of linux.resources that each controller keeps, as the runtime
// specification of the Open Container Initiative names them. Inside of "cpu" there are
// those of two controllers.
var limits = map[string][][]string{
	"cpu":     {{"cpu", "shares"}, {"cpu", "quota"}, {"cpu", "period"}, {"cpu", "burst"}, {"cpu", "idle"}},
	"cpuset":  {{"cpu", "cpus"}, {"cpu", "mems"}},
	"memory":  {{"memory"}},
	"pids":    {{"pids"}},
	"io":      {{"blockIO"}},
	"hugetlb": {{"hugepageLimits"}},
	"rdma":    {{"rdma"}},
}

// withoutLimits returns a container's configuration without the limits that none of
// the controllers keeps.
func withoutLimits(config []byte, controllers string) ([]byte, error) {
	var spec map[string]any
	d := json.NewDecoder(bytes.NewReader(config))
	d.UseNumber() // a limit may have more digits than a float64
	if err := d.Decode(&spec); err != nil {
		return nil, err
	}
	resources := object(object(spec, "linux"), "resources")
	there := strings.Fields(controllers)
	for controller, fields := range limits {
		if slices.Contains(there, controller) {
			continue
		}
		for _, path := range fields {
			last := len(path) - 1
			in := resources
			for _, name := range path[:last] {
				in = object(in, name)
			}
			delete(in, path[last])
		}
	}
	// Fields of "unified" are files of the group: <controller>.<what>.
	maps.DeleteFunc(object(resources, "unified"), func(file string, _ any) bool {
		controller, _, _ := strings.Cut(file, ".")
		return !slices.Contains(there, controller)
	})
	return json.Marshal(spec)
}

// object is a field that is an object, or nil.
func object(in map[string]any, name string) map[string]any {
	o, _ := in[name].(map[string]any)
	return o
}
