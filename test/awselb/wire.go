// SPDX-License-Identifier: Apache-2.0

package awselb

import (
	"encoding/xml"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	classic "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	elbv2 "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
)

// The versions of the two services, which share a host and an action name.
const (
	versionClassic = "2012-06-01"
	versionV2      = "2015-12-01"
)

// maxForm bounds a request, in bytes.
const maxForm = 1 << 20

// inputs are the input types of each version, by action.
var inputs = map[string]map[string]reflect.Type{
	versionV2: {
		"DescribeTargetGroups": reflect.TypeFor[elbv2.DescribeTargetGroupsInput](),
		"DescribeTargetHealth": reflect.TypeFor[elbv2.DescribeTargetHealthInput](),
		"RegisterTargets":      reflect.TypeFor[elbv2.RegisterTargetsInput](),
		"DeregisterTargets":    reflect.TypeFor[elbv2.DeregisterTargetsInput](),
	},
	versionClassic: {
		"DescribeLoadBalancers":               reflect.TypeFor[classic.DescribeLoadBalancersInput](),
		"RegisterInstancesWithLoadBalancer":   reflect.TypeFor[classic.RegisterInstancesWithLoadBalancerInput](),
		"DeregisterInstancesFromLoadBalancer": reflect.TypeFor[classic.DeregisterInstancesFromLoadBalancerInput](),
	},
}

// An Error is an error of AWS.
type Error struct {
	Status        int
	Code, Message string
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }

func refuse(code, format string, args ...any) *Error {
	return &Error{http.StatusBadRequest, code, fmt.Sprintf(format, args...)}
}

// read parses a request: the action, and its input as a pointer to the SDK's type.
func read(r *http.Request) (action string, input any, err error) {
	r.Body = http.MaxBytesReader(nil, r.Body, maxForm)
	if r.Method != http.MethodPost || r.URL.Path != "/" || r.URL.RawQuery != "" {
		return "", nil, refuse("MalformedQueryString", "%s %s: only POST / is served", r.Method, r.URL)
	}
	if got := r.Header.Get("Content-Type"); got != "application/x-www-form-urlencoded" {
		return "", nil, refuse("MalformedInput", "content type %q", got)
	}
	if err := r.ParseForm(); err != nil {
		return "", nil, refuse("MalformedQueryString", "%v", err)
	}
	action = r.PostForm.Get("Action")
	kind := inputs[r.PostForm.Get("Version")][action]
	if kind == nil {
		return action, nil, refuse("InvalidAction", "action %q of version %q is not served", action, r.PostForm.Get("Version"))
	}
	delete(r.PostForm, "Action")
	delete(r.PostForm, "Version")
	value := reflect.New(kind)
	if err := decode(r.PostForm, value.Elem()); err != nil {
		return action, nil, refuse("ValidationError", "%v", err)
	}
	return action, value.Interface(), nil
}

// decode parses an input from a form, and rejects parameters without a field.
func decode(form url.Values, into reflect.Value) error {
	rest := maps.Clone(form)
	if err := decodeStruct(rest, "", into); err != nil {
		return err
	}
	if len(rest) > 0 {
		return fmt.Errorf("unknown parameters %v", slices.Sorted(maps.Keys(rest)))
	}
	return nil
}

// decodeStruct parses the fields of a struct.
func decodeStruct(form url.Values, prefix string, into reflect.Value) error {
	for i := range into.NumField() {
		field := into.Type().Field(i)
		if field.IsExported() {
			if err := decodeValue(form, prefix+field.Name, into.Field(i)); err != nil {
				return err
			}
		}
	}
	return nil
}

// decodeValue parses a value, if it is present.
func decodeValue(form url.Values, key string, into reflect.Value) error {
	switch {
	case into.Kind() == reflect.Slice:
		return decodeList(form, key, into)
	case into.Kind() == reflect.Struct:
		return decodeStruct(form, key+".", into)
	case !form.Has(key):
		return nil
	case len(form[key]) != 1:
		return fmt.Errorf("parameter %s is there %d times", key, len(form[key]))
	}
	text := form.Get(key)
	delete(form, key)
	if into.Kind() == reflect.Pointer {
		into.Set(reflect.New(into.Type().Elem()))
		into = into.Elem()
	}
	switch into.Kind() {
	case reflect.String:
		into.SetString(text)
	case reflect.Int32:
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return fmt.Errorf("parameter %s: %w", key, err)
		}
		into.SetInt(n)
	default:
		return fmt.Errorf("parameter %s: no input has a %s", key, into.Type())
	}
	return nil
}

// decodeList parses a list, whose members are numbered from one. An empty list is its bare name.
func decodeList(form url.Values, key string, into reflect.Value) error {
	if form.Has(key) && form.Get(key) == "" {
		delete(form, key)
		into.Set(reflect.MakeSlice(into.Type(), 0, 0))
	}
	for n := 1; ; n++ {
		member := fmt.Sprintf("%s.member.%d", key, n)
		if !slices.ContainsFunc(slices.Collect(maps.Keys(form)), func(k string) bool { return k == member || strings.HasPrefix(k, member+".") }) {
			return nil
		}
		value := reflect.New(into.Type().Elem()).Elem()
		if err := decodeValue(form, member, value); err != nil {
			return err
		}
		into.Set(reflect.Append(into, value))
	}
}

// write sends an output of the SDK, or an error.
func write(w http.ResponseWriter, id int, action string, output any, err error) {
	w.Header().Set("Content-Type", "text/xml")
	requestID := fmt.Sprintf("00000000-0000-0000-0000-%012d", id)
	w.Header().Set("X-Amzn-Requestid", requestID)
	var b strings.Builder
	if err == nil {
		element(&b, action+"Response", func() {
			element(&b, action+"Result", func() { encodeStruct(&b, reflect.ValueOf(output).Elem()) })
			element(&b, "ResponseMetadata", func() { element(&b, "RequestId", func() { text(&b, requestID) }) })
		})
	} else {
		refusal := &Error{http.StatusInternalServerError, "InternalFailure", err.Error()}
		errors.As(err, &refusal)
		w.WriteHeader(refusal.Status)
		element(&b, "ErrorResponse", func() {
			element(&b, "Error", func() {
				element(&b, "Type", func() { text(&b, "Sender") })
				element(&b, "Code", func() { text(&b, refusal.Code) })
				element(&b, "Message", func() { text(&b, refusal.Message) })
			})
			element(&b, "RequestId", func() { text(&b, requestID) })
		})
	}
	_, _ = w.Write([]byte(b.String()))
}

// encodeStruct writes each field that is set as an element with its name.
func encodeStruct(b *strings.Builder, v reflect.Value) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if field.IsExported() && field.Name != "ResultMetadata" && !v.Field(i).IsZero() {
			element(b, field.Name, func() { encodeValue(b, v.Field(i)) })
		}
	}
}

func encodeValue(b *strings.Builder, v reflect.Value) {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Slice:
		for i := range v.Len() {
			element(b, "member", func() { encodeValue(b, v.Index(i)) })
		}
	case reflect.Struct:
		encodeStruct(b, v)
	default:
		text(b, fmt.Sprint(v.Interface()))
	}
}

func element(b *strings.Builder, name string, content func()) {
	b.WriteString("<" + name + ">")
	content()
	b.WriteString("</" + name + ">")
}

func text(b *strings.Builder, s string) { _ = xml.EscapeText(b, []byte(s)) }
