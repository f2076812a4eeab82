// SPDX-License-Identifier: Apache-2.0

// Package elb answers one question: what does Elastic Load Balancing of AWS say of a Node,
// and how is it told? It calls seven actions, those of the IAM policy that operators of
// node-detacher have already given out, and no others. It finds credentials as all programs
// for AWS do, and knows nothing of Kubernetes.
package elb

import (
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
	// every is how long to wait between two looks at a target that is draining: the interval
	// of AWS' own waiter. All users of an account share its limits.
	every = 15 * time.Second
	// timeout bounds a request and its answer, within what the caller's context leaves.
	timeout = 10 * time.Second
	// attempts are how often a request is sent at most: once more, for a connection that was
	// cut. Whoever calls a driver waits longer between two calls than a client can.
	attempts = 2
	// pause bounds the wait between two attempts.
	pause = 2 * time.Second
	// maxPages bounds what is read of a list. At 400 a page it is more than three times what
	// AWS grants an account before it is asked.
	maxPages = 25
	pageSize = 400
	// longest bounds the body of an answer: that of 400 classic load balancers with 500
	// instances each.
	longest = 16 << 20
	// idle is how long clients are kept that nobody uses: longer than anything is remembered.
	idle = 10 * time.Minute
	// batch is how many targets or instances are named in a request.
	batch = 100
)

// region is what names of regions look like. They become part of a host's name.
var region = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// Clients are the clients of all drivers. Those for the same place share connections,
// credentials, what may be spent on retries, and what AWS said a moment ago. Safe for
// concurrent use.
type Clients struct {
	now    func() time.Time
	lock   chan struct{} // unlike a mutex, it is not waited for longer than a context
	places map[expv1.AWSAccess]*services
}

// services are the clients for a place.
type services struct {
	used         time.Time
	targetGroups *elbv2.Client
	classic      *classic.Client
	// groups are those of the region, health is that of the targets of a group, and
	// balancers are the classic load balancers of the region.
	groups    *shared[[]types.TargetGroup]
	health    *shared[targetHealth]
	balancers *shared[[]classictypes.LoadBalancerDescription]
	// told are the places that were taken out a moment ago.
	told *told
}

// NewClients returns no clients yet: each is made when it is first used.
func NewClients(c clock.PassiveClock) *Clients {
	return &Clients{now: c.Now, lock: make(chan struct{}, 1), places: map[expv1.AWSAccess]*services{}}
}

// at returns the clients for a place. What the environment and the files of AWS say is
// read the first time; credentials are asked for with the first request.
func (c *Clients) at(ctx context.Context, place expv1.AWSAccess) (*services, error) {
	select {
	case c.lock <- struct{}{}:
		defer func() { <-c.lock }()
	case <-ctx.Done():
		return nil, unread(ctx.Err())
	}
	now := c.now()
	maps.DeleteFunc(c.places, func(_ expv1.AWSAccess, s *services) bool { return now.Sub(s.used) >= idle })
	if s := c.places[place]; s != nil {
		s.used = now
		return s, nil
	}
	cfg, err := config.LoadDefaultConfig(ctx,
		config.WithRegion(place.Region),
		config.WithHTTPClient(awshttp.NewBuildableClient().WithTimeout(timeout)))
	if err != nil {
		return nil, unread(err)
	}
	cfg.HTTPClient = bounded{cfg.HTTPClient} // not before, as a bundle of certificates has to get to the one below
	retryer := retry.NewStandard(func(o *retry.StandardOptions) { o.MaxAttempts, o.MaxBackoff = attempts, pause })
	cfg.Retryer = func() aws.Retryer { return retryer }
	cfg.APIOptions = append(cfg.APIOptions, sendPlainly)
	var endpoint *string
	if place.Endpoint != "" {
		endpoint = aws.String(place.Endpoint)
	}
	s := &services{
		used:         now,
		targetGroups: elbv2.NewFromConfig(cfg, func(o *elbv2.Options) { o.BaseEndpoint = or(endpoint, o.BaseEndpoint) }),
		classic:      classic.NewFromConfig(cfg, func(o *classic.Options) { o.BaseEndpoint = or(endpoint, o.BaseEndpoint) }),
		groups:       newShared[[]types.TargetGroup](c.now),
		health:       newShared[targetHealth](c.now),
		balancers:    newShared[[]classictypes.LoadBalancerDescription](c.now),
		told:         newTold(c.now),
	}
	c.places[place] = s
	return s, nil
}

// sendPlainly hides that a request's body can write itself. smithy-go closes a body as soon
// as the answer begins; one that writes itself then ends with io.EOF, net/http takes that for
// a failure of the request, and the rest of the answer is lost with the connection.
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

// bounded reads no more of an answer than longest.
type bounded struct{ aws.HTTPClient }

// Do implements aws.HTTPClient.
func (b bounded) Do(request *http.Request) (*http.Response, error) {
	response, err := b.HTTPClient.Do(request)
	if err == nil {
		response.Body = &body{response.Body, longest}
	}
	return response, err
}

// A body is that of an answer, of which so much is left to be read.
type body struct {
	io.ReadCloser
	left int
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= n; b.left < 0 {
		return 0, failure{text: fmt.Sprintf("answer is longer than %d MB", longest>>20)}
	}
	return n, err
}

// unread is the error of a configuration that cannot be read.
func unread(err error) error {
	return failure{"reading AWS' configuration: " + clip.Note(err.Error()), err}
}

// or returns the first that is there.
func or(first, second *string) *string {
	if first != nil {
		return first
	}
	return second
}

// validate refuses a place that cannot be one. A request carries what proves who we are.
func validate(place expv1.AWSAccess) error {
	if !region.MatchString(place.Region) {
		return fmt.Errorf("region %q is not the name of a region, such as eu-central-1", place.Region)
	}
	if place.Endpoint == "" {
		return nil
	}
	u, err := url.Parse(place.Endpoint)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http" {
		return fmt.Errorf("endpoint %q is not an address such as https://elasticloadbalancing.eu-central-1.amazonaws.com", place.Endpoint)
	}
	return nil
}
