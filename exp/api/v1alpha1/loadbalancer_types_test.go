// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"os"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

var server *testenv.Server

func TestMain(m *testing.M) {
	os.Exit(testenv.Main(m, func(s *testenv.Server) { server = s }))
}

const arn = "arn:aws:elasticloadbalancing:eu-central-1:123456789012:targetgroup/web/0123456789abcdef"

func proxy(endpoint string, backends ...string) func(*expv1.LoadBalancerSpec) {
	return func(s *expv1.LoadBalancerSpec) {
		s.HAProxy = &expv1.HAProxyBalancer{Endpoints: []string{endpoint}, Backends: backends}
	}
}

func groups(region, endpoint string, arns ...string) func(*expv1.LoadBalancerSpec) {
	return func(s *expv1.LoadBalancerSpec) {
		s.TargetGroups = &expv1.TargetGroupsBalancer{AWSAccess: expv1.AWSAccess{Region: region, Endpoint: endpoint}, ARNs: arns}
	}
}

func of(cluster string) func(*expv1.LoadBalancerSpec) {
	return func(s *expv1.LoadBalancerSpec) {
		s.ClusterName, s.KubeProxy = cluster, &expv1.KubeProxyBalancer{}
	}
}

// TestSchemaRejections checks that the API server's error explains what to write instead.
func TestSchemaRejections(t *testing.T) {
	namespace := server.Namespace(t)
	const (
		endpoint = "spec.haproxy.endpoints[0]: Invalid value: "
		like     = "must be like tcp://192.0.2.1:9999 or unix:///run/haproxy/admin.sock"
		port     = "the port must be from 1 to 65535"
		names    = "HAProxy's names have letters, digits and .:_- alone"
		region   = "must be the name of a region, such as eu-central-1"
		group    = "must be the ARN of a target group, such as " + arn
		host     = "must be like https://elasticloadbalancing.eu-central-1.amazonaws.com, without a path"
		cluster  = "must be the name of a Cluster"
	)
	for _, c := range []struct {
		name   string
		change func(*expv1.LoadBalancerSpec)
		want   []string
	}{
		{name: "Endpoint", change: proxy("tcp://192.0.2.1:9999", "web-1.a:b_c")},
		{name: "EndpointOfIPv6", change: proxy("tcp://[2001:db8::1]:65535")},
		{name: "EndpointIsASocket", change: proxy("unix:///run/haproxy/admin.sock")},
		{name: "PortTooHigh", change: proxy("tcp://192.0.2.1:99999"), want: []string{endpoint + `"tcp://192.0.2.1:99999"`, port}},
		{name: "PortJustTooHigh", change: proxy("tcp://192.0.2.1:65536"), want: []string{endpoint, port}},
		{name: "PortZero", change: proxy("tcp://192.0.2.1:0"), want: []string{endpoint, port}},
		{name: "NoPort", change: proxy("tcp://192.0.2.1"), want: []string{endpoint, like}},
		{name: "NoScheme", change: proxy("192.0.2.1:9999"), want: []string{endpoint, like}},
		{name: "SocketWithoutPath", change: proxy("unix://haproxy.sock"), want: []string{endpoint, like}},
		{name: "BackendWithABlank", change: proxy("unix:///s", "web farm"), want: []string{`spec.haproxy.backends[0]: Invalid value: "web farm"`, names}},
		{name: "BackendWithACommand", change: proxy("unix:///s", "web;quit"), want: []string{names}},
		{name: "Group", change: groups("eu-central-1", "", arn)},
		{name: "GroupOfChina", change: groups("cn-north-1", "", strings.NewReplacer("aws:", "aws-cn:", "eu-central-1", "cn-north-1").Replace(arn))},
		{name: "Region", change: groups("eu_central_1", ""), want: []string{"spec.targetGroups.region: Invalid value: ", region}},
		{name: "GroupIsABalancer", change: groups("eu-central-1", "", strings.Replace(arn, "targetgroup/", "loadbalancer/app/", 1)), want: []string{"spec.targetGroups.arns[0]: Invalid value: ", group}},
		{name: "GroupIsNoARN", change: groups("eu-central-1", "", "web"), want: []string{group}},
		{name: "GroupElsewhere", change: groups("eu-west-1", "", arn), want: []string{"spec.targetGroups.arns: Invalid value: ", "all must be in spec.targetGroups.region"}},
		{name: "HostOfAVPC", change: groups("eu-central-1", "https://vpce-0123.elasticloadbalancing.eu-central-1.vpce.amazonaws.com/")},
		{name: "OwnHost", change: groups("eu-central-1", "http://[::1]:4566")},
		{name: "HostInTheClear", change: groups("eu-central-1", "http://192.0.2.1"), want: []string{"spec.targetGroups.endpoint: Invalid value: ", host}},
		{name: "HostWithAPath", change: groups("eu-central-1", "https://example.com/elb"), want: []string{host}},
		{name: "Cluster", change: of("batch-1.x_Y")},
		{name: "ClusterWithASlash", change: of("a/b"), want: []string{`spec.clusterName: Invalid value: "a/b"`, cluster}},
		{name: "ClusterWithABlank", change: of("a b"), want: []string{cluster}},
	} {
		lb := &expv1.LoadBalancer{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "edge"}}
		lb.Spec.ClusterName = "lab"
		c.change(&lb.Spec)
		err := server.Client.Create(t.Context(), lb, client.DryRunAll)
		if (err == nil) != (len(c.want) == 0) || err != nil && !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", c.name, err, want)
			}
		}
	}
}
