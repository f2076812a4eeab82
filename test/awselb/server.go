// SPDX-License-Identifier: Apache-2.0

package awselb

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	classic "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	elbv2 "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
)

// Region is the served region.
const Region = "eu-central-1"

// credential matches the required scope of a signature.
var credential = regexp.MustCompile(`^AWS4-HMAC-SHA256 Credential=[^/]+/[0-9]{8}/` + Region + `/elasticloadbalancing/aws4_request, `)

// Environment returns variables with accepted credentials, which also disable all other credential sources.
func Environment() map[string]string {
	return map[string]string{
		"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
	}
}

// Options configure the service. Zero values are AWS's behaviour, except that there is no delay and no lag.
type Options struct {
	// Now is the clock.
	Now func() time.Time
	// Delay is the deregistration delay of target groups.
	Delay time.Duration
	// Warmup is how long a newly registered target is initial.
	Warmup time.Duration
	// Lag is how long reads do not show a write.
	Lag time.Duration
	// PageSize bounds a page, whatever size the request has.
	PageSize int
	// Allowed are the actions that the IAM policy allows. Empty means all seven.
	Allowed []string
	// Reads and Writes are the token buckets of calls.
	Reads, Writes Bucket
}

// A Bucket is a token bucket. The zero value has no limit.
type Bucket struct {
	// Burst is its size.
	Burst float64
	// Refill is the tokens per second.
	Refill float64

	used float64
	seen time.Time
}

// take takes a token, and reports whether there was one.
func (b *Bucket) take(now time.Time) bool {
	if b.Burst == 0 {
		return true
	}
	if !b.seen.IsZero() {
		b.used = max(0, b.used-b.Refill*now.Sub(b.seen).Seconds())
	}
	b.seen = now
	if b.used+1 > b.Burst {
		return false
	}
	b.used++
	return true
}

// A Call is a request with its result.
type Call struct {
	Action string
	// Input is a pointer to the SDK's input type; nil if the request was invalid.
	Input any
	// Code is the code of the error, empty if there was none.
	Code string
}

// A Server serves both services of one account in one region.
type Server struct {
	// URL is its endpoint.
	URL string
	// Close stops the server.
	Close func()

	mu        sync.Mutex
	options   Options
	groups    []*group
	balancers []*loadBalancer
	calls     []Call
	failures  map[string][]string
	vpc       netip.Prefix
}

// Start serves until the test ends.
func Start(t *testing.T, options Options) *Server {
	t.Helper()
	s := New(options)
	t.Cleanup(s.Close)
	return s
}

// New serves until Close.
func New(options Options) *Server {
	if options.Now == nil {
		options.Now = time.Now //nolint:forbidigo // the default of a test that has no clock
	}
	s := &Server{options: options, failures: map[string][]string{}, vpc: netip.MustParsePrefix("10.0.0.0/16")}
	web := httptest.NewServer(s)
	s.URL, s.Close = web.URL, web.Close
	return s
}

// Throttle replaces both buckets.
func (s *Server) Throttle(reads, writes Bucket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.options.Reads, s.options.Writes = reads, writes
}

// Fail makes the next calls of an action fail with these codes, in order.
func (s *Server) Fail(action string, codes ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures[action] = append(s.failures[action], codes...)
}

// Forgive ends the effect of Fail for an action.
func (s *Server) Forgive(action string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.failures, action)
}

// Allow replaces the actions of the IAM policy.
func (s *Server) Allow(actions ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.options.Allowed = actions
}

// Calls returns the calls since its previous call.
func (s *Server) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}

// Count returns the number of calls of each action.
func Count(calls []Call) map[string]int {
	counts := map[string]int{}
	for _, c := range calls {
		counts[c.Action]++
	}
	return counts
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	action, input, err := read(r)
	if !credential.MatchString(r.Header.Get("Authorization")) {
		err = &Error{http.StatusForbidden, "MissingAuthenticationToken", "Missing Authentication Token"}
	}
	var output any
	if err == nil {
		err = s.admit(action)
	}
	if err == nil {
		output, err = s.answer(input)
	}
	call := Call{Action: action, Input: input}
	if err != nil {
		call.Code, _, _ = strings.Cut(err.Error(), ":")
	}
	s.calls = append(s.calls, call)
	write(w, len(s.calls), action, output, err)
}

// admit returns an error if an action is not allowed now.
func (s *Server) admit(action string) error {
	allowed := len(s.options.Allowed) == 0 || slices.Contains(s.options.Allowed, action)
	if !allowed {
		return &Error{http.StatusForbidden, "AccessDenied", fmt.Sprintf("User: arn:aws:iam::123456789012:user/five-spot is not authorized to perform: elasticloadbalancing:%s because no identity-based policy allows the elasticloadbalancing:%[1]s action", action)}
	}
	bucket := &s.options.Writes
	if strings.HasPrefix(action, "Describe") {
		bucket = &s.options.Reads
	}
	if !bucket.take(s.options.Now()) {
		return refuse("Throttling", "Rate exceeded")
	}
	if codes := s.failures[action]; len(codes) > 0 {
		s.failures[action] = codes[1:]
		return refuse(codes[0], "as the test wants")
	}
	return nil
}

// answer executes an action.
func (s *Server) answer(input any) (any, error) {
	switch in := input.(type) {
	case *elbv2.DescribeTargetGroupsInput:
		return s.describeTargetGroups(in)
	case *elbv2.DescribeTargetHealthInput:
		return s.describeTargetHealth(in)
	case *elbv2.RegisterTargetsInput:
		return s.registerTargets(in)
	case *elbv2.DeregisterTargetsInput:
		return s.deregisterTargets(in)
	case *classic.DescribeLoadBalancersInput:
		return s.describeLoadBalancers(in)
	case *classic.RegisterInstancesWithLoadBalancerInput:
		return s.registerInstances(in)
	case *classic.DeregisterInstancesFromLoadBalancerInput:
		return s.deregisterInstances(in)
	default:
		return nil, fmt.Errorf("nothing answers a %T", input)
	}
}

// page returns the bounds of a page and the marker of the next. A marker is the position of a page's first entry, in an
// opaque form.
func (s *Server) page(size int, marker *string, wanted *int32) (from, to int, next *string, err error) {
	limit := 400
	if wanted != nil {
		if *wanted < 1 || *wanted > 400 {
			return 0, 0, nil, refuse("ValidationError", "1 validation error detected: Value '%d' at 'pageSize' failed to satisfy constraint", *wanted)
		}
		limit = int(*wanted)
	}
	if s.options.PageSize > 0 {
		limit = min(limit, s.options.PageSize)
	}
	if marker != nil {
		if _, err := fmt.Sscanf(*marker, "AAAA%x==", &from); err != nil || from > size {
			return 0, 0, nil, refuse("ValidationError", "marker %q", *marker)
		}
	}
	to = min(from+limit, size)
	if to < size {
		next = new(string)
		*next = fmt.Sprintf("AAAA%x==", to)
	}
	return from, to, next, nil
}
