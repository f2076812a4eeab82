// SPDX-License-Identifier: Apache-2.0

package awselb

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	classic "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	classictypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing/types"
	elbv2 "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// An echo answers each request with an output or an error of the test, and stores the request.
type echo struct {
	input  any
	output any
	err    error
}

func (e *echo) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	action, input, err := read(r)
	e.input = input
	if err == nil {
		err = e.err
	}
	write(w, 1, action, e.output, err)
}

// calls are the seven actions, each with a method of the SDK.
func calls(endpoint string) map[string]any {
	credentials := aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: "a", SecretAccessKey: "b"}, nil
	})
	v2 := elbv2.New(elbv2.Options{Region: Region, BaseEndpoint: &endpoint, Credentials: credentials, Retryer: aws.NopRetryer{}})
	v1 := classic.New(classic.Options{Region: Region, BaseEndpoint: &endpoint, Credentials: credentials, Retryer: aws.NopRetryer{}})
	return map[string]any{
		"DescribeTargetGroups":                v2.DescribeTargetGroups,
		"DescribeTargetHealth":                v2.DescribeTargetHealth,
		"RegisterTargets":                     v2.RegisterTargets,
		"DeregisterTargets":                   v2.DeregisterTargets,
		"DescribeLoadBalancers":               v1.DescribeLoadBalancers,
		"RegisterInstancesWithLoadBalancer":   v1.RegisterInstancesWithLoadBalancer,
		"DeregisterInstancesFromLoadBalancer": v1.DeregisterInstancesFromLoadBalancer,
	}
}

// same ignores metadata that the SDK adds to its types.
var same = cmp.FilterPath(func(p cmp.Path) bool {
	field, ok := p.Last().(cmp.StructField)
	return ok && (field.Name() == "noSmithyDocumentSerde" || field.Name() == "ResultMetadata")
}, cmp.Ignore())

// call calls a method of the SDK and returns its output. It retries if the SDK cut the connection, which happens if the
// response arrives before the SDK has sent the whole request. smithy-go's safeWriteToReadCloser then ends with io.EOF,
// which net/http takes for an error of the request's body.
func call(ctx context.Context, method, input any) (any, error) {
	for {
		output, err := once(ctx, method, input)
		if !errors.Is(err, net.ErrClosed) {
			return output, err
		}
	}
}

func once(ctx context.Context, method, input any) (any, error) {
	results := reflect.ValueOf(method).Call([]reflect.Value{reflect.ValueOf(ctx), reflect.ValueOf(input)})
	err, _ := reflect.TypeAssert[error](results[1])
	return results[0].Interface(), err
}

// draw fills a value. If all is true it sets every part, otherwise random parts. A list may be empty.
func draw(t *rapid.T, v reflect.Value, all bool) {
	if !all && v.Kind() != reflect.Struct && rapid.Bool().Draw(t, "unset") {
		return
	}
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.UnixMilli(rapid.Int64Range(1, 4e12).Draw(t, "time")).UTC()))
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		draw(t, v.Elem(), true)
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() && field.Name != "ResultMetadata" {
				draw(t, v.Field(i), all)
			}
		}
	case v.Kind() == reflect.Slice:
		n := rapid.IntRange(0, 3).Draw(t, "length")
		if all {
			n++
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			draw(t, v.Index(i), true)
		}
	case v.Kind() == reflect.String:
		v.SetString(rapid.StringMatching(`[!-~ä→&<>"'%+=]([ -~ä→&<>"'%+=]{0,8}[!-~])?`).Draw(t, "text"))
	case v.Kind() == reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, "bool"))
	case v.CanInt():
		v.SetInt(rapid.Int64Range(-1<<31, 1<<31-1).Draw(t, "number"))
	default:
		t.Fatalf("no value for a %s", v.Type())
	}
}

// TestRequestsAreReadAsTheSDKWritesThem sends random inputs of each action. The server must parse the same input, so
// that it ignores no parameter and knows no other.
func TestRequestsAreReadAsTheSDKWritesThem(t *testing.T) {
	server := &echo{}
	web := httptest.NewServer(server)
	defer web.Close()
	for action, method := range calls(web.URL) {
		t.Run(action, func(t *testing.T) {
			in, out := reflect.TypeOf(method).In(1).Elem(), reflect.TypeOf(method).Out(0).Elem()
			rapid.Check(t, func(t *rapid.T) {
				input := reflect.New(in)
				draw(t, input.Elem(), rapid.Bool().Draw(t, "all"))
				server.input, server.output = nil, reflect.New(out).Interface()
				_, err := call(context.Background(), method, input.Interface())
				if _, incomplete := errors.AsType[smithy.InvalidParamsError](err); incomplete {
					return // The SDK does not send a request without required parameters.
				}
				if err != nil {
					t.Fatalf("%+v is not understood: %v", input, err)
				}
				if diff := cmp.Diff(input.Interface(), server.input, same); diff != "" {
					t.Fatalf("the server reads another request (-sent +read):\n%s", diff)
				}
			})
		})
	}
}

// TestAnswersAreReadByTheSDK answers with random outputs. The SDK must parse the same output.
func TestAnswersAreReadByTheSDK(t *testing.T) {
	server := &echo{}
	web := httptest.NewServer(server)
	defer web.Close()
	for action, method := range calls(web.URL) {
		t.Run(action, func(t *testing.T) {
			in, out := reflect.TypeOf(method).In(1).Elem(), reflect.TypeOf(method).Out(0).Elem()
			rapid.Check(t, func(t *rapid.T) {
				input, output := reflect.New(in), reflect.New(out)
				draw(t, input.Elem(), true)
				draw(t, output.Elem(), rapid.Bool().Draw(t, "all"))
				server.output = output.Interface()
				got, err := call(context.Background(), method, input.Interface())
				if err != nil {
					t.Fatalf("the answer %+v is not understood: %v", output, err)
				}
				if diff := cmp.Diff(output.Interface(), got, same, cmpopts.EquateEmpty()); diff != "" {
					t.Fatalf("the SDK reads another answer (-written +read):\n%s", diff)
				}
			})
		})
	}
}

// TestErrorsAreReadByTheSDK answers with errors: the SDK must return its type or its code.
func TestErrorsAreReadByTheSDK(t *testing.T) {
	server := &echo{}
	web := httptest.NewServer(server)
	defer web.Close()
	methods := calls(web.URL)
	for code, c := range map[string]struct {
		action string
		kind   any
	}{
		"TargetGroupNotFound":  {"DescribeTargetHealth", new(*types.TargetGroupNotFoundException)},
		"InvalidTarget":        {"RegisterTargets", new(*types.InvalidTargetException)},
		"LoadBalancerNotFound": {"DescribeLoadBalancers", new(*classictypes.AccessPointNotFoundException)},
		"AccessDenied":         {"DeregisterTargets", new(*smithy.GenericAPIError)},
		"Throttling":           {"DescribeTargetGroups", new(*smithy.GenericAPIError)},
	} {
		server.err = refuse(code, "because of <%s>", c.action)
		input := reflect.New(reflect.TypeOf(methods[c.action]).In(1).Elem())
		rapid.Check(t, func(t *rapid.T) { draw(t, input.Elem(), true) })
		_, err := call(t.Context(), methods[c.action], input.Interface())
		if !errors.As(err, c.kind) {
			t.Errorf("%s: the SDK reads a %T: %v", code, err, err)
		}
		api, ok := errors.AsType[smithy.APIError](err)
		if !ok || api.ErrorCode() != code || api.ErrorMessage() != "because of <"+c.action+">" {
			t.Errorf("%s: the SDK reads %v", code, api)
		}
	}
}

// TestWhatTheSDKDoesNotWriteIsRefused sends forms that are not valid requests of the seven actions.
func TestWhatTheSDKDoesNotWriteIsRefused(t *testing.T) {
	for reason, c := range map[string]struct{ body, code string }{
		"AnotherAction":     {"Action=DeleteTargetGroup&Version=2015-12-01", "InvalidAction"},
		"AnotherVersion":    {"Action=RegisterTargets&Version=2012-06-01", "InvalidAction"},
		"AnotherParameter":  {"Action=DescribeTargetGroups&Version=2015-12-01&PageSizes=1", "ValidationError"},
		"AMemberLeftOut":    {"Action=DescribeTargetGroups&Version=2015-12-01&Names.member.2=a", "ValidationError"},
		"ANumberThatIsNone": {"Action=DescribeTargetGroups&Version=2015-12-01&PageSize=many", "ValidationError"},
		"SaidTwice":         {"Action=DescribeTargetGroups&Version=2015-12-01&PageSize=1&PageSize=2", "ValidationError"},
		"Nothing":           {"", "InvalidAction"},
	} {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(c.body))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		_, _, err := read(r)
		if refusal, ok := errors.AsType[*Error](err); !ok || refusal.Code != c.code {
			t.Errorf("%s: %v, want %s", reason, err, c.code)
		}
	}
}
