// SPDX-License-Identifier: Apache-2.0

// Package elb is the Driver for Elastic Load Balancing of AWS: target groups and classic load balancers. It uses seven
// API actions, the same as the IAM policy of node-detacher. It finds credentials by the default chain of the AWS SDK,
// and does not depend on Kubernetes.
package elb

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	classic "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	classictypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing/types"
	elbv2 "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"k8s.io/utils/clock"

	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
)

const (
	// every is the interval between two reads of a draining target. AWS' own waiter uses the same. All clients of an
	// account share its request limit.
	every = 15 * time.Second
	// timeout bounds a request and its response, within the deadline of the context.
	timeout = 10 * time.Second
	// attempts is the maximum number of attempts per request: one retry, for a broken connection. Callers of a driver
	// retry with a longer delay.
	attempts = 2
	// pause is the maximum delay between two attempts.
	pause = 2 * time.Second
	// maxPages bounds the pages of a list. With 400 entries a page, it exceeds three times the default quota of an AWS
	// account.
	maxPages = 25
	pageSize = 400
	// maxBody bounds the body of a response, in bytes. It fits 400 classic load balancers with 500 instances each.
	maxBody = 16 << 20
	// idle is how long unused clients are kept. It is longer than the lifetime of any cached result.
	idle = 10 * time.Minute
	// batch is the maximum number of targets or instances in a request.
	batch = 100
)

// region matches the names of regions. They become part of a host name.
var region = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// Clients holds the AWS clients of all drivers. Drivers with the same region and endpoint share connections,
// credentials, the retry quota, and cached results. It is safe for concurrent use.
type Clients struct {
	now      func() time.Time
	lock     chan struct{} // a channel, because waiting for it must end with the context
	byAccess map[expv1.AWSAccess]*services
}

// services holds the clients for one region and endpoint.
type services struct {
	used         time.Time
	targetGroups *elbv2.Client
	classic      *classic.Client
	// groups caches the target groups of the region. health caches the targets of each group. balancers caches the
	// classic load balancers of the region.
	groups    *shared[[]types.TargetGroup]
	health    *shared[targetHealth]
	balancers *shared[[]classictypes.LoadBalancerDescription]
	// drains holds the memberships that were deregistered a moment ago.
	drains *recentDrains
}

// NewClients returns an empty set of clients. Each client is created on first use.
func NewClients(c clock.PassiveClock) *Clients {
	return &Clients{now: c.Now, lock: make(chan struct{}, 1), byAccess: map[expv1.AWSAccess]*services{}}
}

// at returns the clients for a region and endpoint. The first call reads the environment and AWS' configuration files.
// The first request fetches the credentials.
func (c *Clients) at(ctx context.Context, access expv1.AWSAccess) (*services, error) {
	select {
	case c.lock <- struct{}{}:
		defer func() { <-c.lock }()
	case <-ctx.Done():
		return nil, unread(ctx.Err())
	}
	now := c.now()
	maps.DeleteFunc(c.byAccess, func(_ expv1.AWSAccess, s *services) bool { return now.Sub(s.used) >= idle })
	if s := c.byAccess[access]; s != nil {
		s.used = now
		return s, nil
	}
	cfg, err := config.LoadDefaultConfig(ctx,
		config.WithRegion(access.Region),
		config.WithHTTPClient(awshttp.NewBuildableClient().WithTimeout(timeout)))
	if err != nil {
		return nil, unread(err)
	}
	cfg.HTTPClient = bounded{cfg.HTTPClient} // set last, because a CA bundle must configure the inner client
	retryer := retry.NewStandard(func(o *retry.StandardOptions) { o.MaxAttempts, o.MaxBackoff = attempts, pause })
	cfg.Retryer = func() aws.Retryer { return retryer }
	cfg.APIOptions = append(cfg.APIOptions, sendPlainly)
	var endpoint *string
	if access.Endpoint != "" {
		endpoint = aws.String(access.Endpoint)
	}
	s := &services{
		used:         now,
		targetGroups: elbv2.NewFromConfig(cfg, func(o *elbv2.Options) { o.BaseEndpoint = cmp.Or(endpoint, o.BaseEndpoint) }),
		classic:      classic.NewFromConfig(cfg, func(o *classic.Options) { o.BaseEndpoint = cmp.Or(endpoint, o.BaseEndpoint) }),
		groups:       newShared[[]types.TargetGroup](c.now),
		health:       newShared[targetHealth](c.now),
		balancers:    newShared[[]classictypes.LoadBalancerDescription](c.now),
		drains:       newRecentDrains(c.now),
	}
	c.byAccess[access] = s
	return s, nil
}

// sendPlainly hides the WriteTo method of a request body. smithy-go closes the body as soon as the response starts. A
// body with WriteTo then returns io.EOF, which net/http treats as a failed request, and the remaining response is
// lost.
func sendPlainly(stack *middleware.Stack) error {
	return stack.Build.Add(middleware.BuildMiddlewareFunc("SendPlainly", func(ctx context.Context, in middleware.BuildInput, next middleware.BuildHandler) (middleware.BuildOutput, middleware.Metadata, error) {
		if request, ok := in.Request.(*smithyhttp.Request); ok {
			if body, ok := request.GetStream().(io.ReadSeeker); ok {
				plain, err := request.SetStream(struct{ io.ReadSeeker }{body})
				if err != nil {
					return middleware.BuildOutput{}, middleware.Metadata{}, err
				}
				in.Request = plain
			}
		}
		return next.HandleBuild(ctx, in)
	}), middleware.Before)
}

// bounded limits the length of each response body to maxBody.
type bounded struct{ aws.HTTPClient }

// Do implements aws.HTTPClient.
func (b bounded) Do(request *http.Request) (*http.Response, error) {
	response, err := b.HTTPClient.Do(request)
	if err == nil {
		response.Body = http.MaxBytesReader(nil, response.Body, maxBody)
	}
	return response, err
}

// unread returns the error for a configuration that could not be read.
func unread(err error) error {
	return failure{"reading AWS' configuration: " + clip.Note(err.Error()), err}
}

// validate rejects an invalid region or endpoint, because each request carries a signature of the manager's
// credentials.
func validate(access expv1.AWSAccess) error {
	if !region.MatchString(access.Region) {
		return fmt.Errorf("region %q is not the name of a region, such as eu-central-1", access.Region)
	}
	if access.Endpoint == "" {
		return nil
	}
	u, err := url.Parse(access.Endpoint)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http" {
		return fmt.Errorf("endpoint %q is not an address such as https://elasticloadbalancing.eu-central-1.amazonaws.com", access.Endpoint)
	}
	return nil
}
