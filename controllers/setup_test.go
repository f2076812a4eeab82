// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach"
	"github.com/finos/cluster-api-addon-provider-5spot/feature"
)

// limited is a manager whose client has a low rate limit.
type limited struct {
	ctrl.Manager
	config *rest.Config
}

func (l limited) GetConfig() *rest.Config  { return l.config }
func (limited) GetScheme() *runtime.Scheme { return scheme.Scheme }
func (limited) GetCache() cache.Cache      { return &informertest.FakeInformers{} }

// configMaps is an API server for ConfigMaps that accepts each write.
func configMaps(w http.ResponseWriter, r *http.Request) {
	var answer any
	switch r.URL.Path {
	case "/api":
		answer = metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}
	case "/apis":
		answer = metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	case "/api/v1":
		answer = metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "v1",
			APIResources: []metav1.APIResource{{Name: "configmaps", Kind: "ConfigMap", Namespaced: true, Verbs: metav1.Verbs{"delete"}}},
		}
	default:
		answer = metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess}
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		w.WriteHeader(http.StatusInternalServerError)
	}
}

// TestTheEmergencyLaneHasNoRateLimit writes twenty times, where the manager's limit is eight an hour. An owner must not
// wait for a thousand departures.
func TestTheEmergencyLaneHasNoRateLimit(t *testing.T) {
	ts := httptest.NewServer(http.HandlerFunc(configMaps))
	t.Cleanup(ts.Close)
	for name, config := range map[string]*rest.Config{
		"Rate":    {Host: ts.URL, QPS: 1. / 3600, Burst: 8},
		"Limiter": {Host: ts.URL, RateLimiter: flowcontrol.NewTokenBucketRateLimiter(1./3600, 8)},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := unlimitedClient(limited{config: config})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for i := range 20 {
				began := time.Now()
				err := c.Delete(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"}})
				if err != nil {
					t.Fatalf("write %d: %v after %v", i, err, time.Since(began))
				}
			}
			if config.QPS < 0 {
				t.Error("the manager's own client has no limit any more")
			}
		})
	}
}

// logs is a manager that records its log.
type logs struct {
	ctrl.Manager
	log   logr.Logger
	added *[]manager.Runnable
}

func (l logs) GetLogger() logr.Logger       { return l.log }
func (logs) GetClient() client.Client       { return nil }
func (logs) GetAPIReader() client.Reader    { return nil }
func (l logs) Add(r manager.Runnable) error { *l.added = append(*l.added, r); return nil }

func TestATaintThatNobodyLooksForIsTold(t *testing.T) {
	for name, tc := range map[string]struct {
		taints []string
		want   int
	}{
		"None": {},
		"Some": {[]string{"karpenter.sh/disrupted"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var said []string
			var added []manager.Runnable
			log := funcr.New(func(_, args string) { said = append(said, args) }, funcr.Options{})
			s := &shared{Options: Options{DetachTaints: tc.taints}, mgr: logs{log: log, added: &added}}
			if err := s.setUpDetach(); err != nil {
				t.Fatal(err)
			}
			if len(said) != tc.want || tc.want > 0 && (!strings.Contains(said[0], "--detach-taints") || !strings.Contains(said[0], "NodeDetach")) {
				t.Errorf("with the feature gate off the log says %q", said)
			}
			if len(added) != 1 || added[0] != (detach.GateOff{}) {
				t.Errorf("with the feature gate off %v runs", added)
			}
		})
	}
}

// TestTheGuardIsInstalledWhereItIsAskedFor checks which options install which manifests.
func TestTheGuardIsInstalledWhereItIsAskedFor(t *testing.T) {
	for name, tc := range map[string]struct {
		gate    bool
		install AgentInstall
		want    bool
	}{
		"Off":      {false, AgentInstallEnabled, false},
		"Disabled": {true, AgentInstallDisabled, false},
		"On":       {true, AgentInstallEnabled, true},
	} {
		t.Run(name, func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, feature.Gates, feature.EvictionGuard, tc.gate)
			guard, err := guardManifests(Options{EvictionGuardInstall: tc.install, EvictionGuardImage: "mirror.example/5spot:v1"})
			if err != nil || (len(guard) > 0) != tc.want {
				t.Fatalf("%d objects, %v", len(guard), err)
			}
			if !tc.want {
				return
			}
			agent, err := agentManifests(Options{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(agent[0].Object, guard[0].Object); diff != "" {
				t.Errorf("both have the Namespace, and would take turns: -agent, +guard:\n%s", diff)
			}
		})
	}
}
