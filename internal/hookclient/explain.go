// SPDX-License-Identifier: Apache-2.0

package hookclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"
)

// failure is an error with a stable text. The text of the cause may contain a time, a port or an address that
// differs in each call. It would update a condition with every call.
type failure struct {
	text  string
	cause error
}

func (f failure) Error() string { return f.text }
func (f failure) Unwrap() error { return f.cause }

// explain returns the error for a failed call.
func explain(err error, timeout time.Duration) error {
	if errors.Is(err, context.Canceled) {
		return err // The caller canceled the call.
	}
	for _, reason := range []func(error) string{certificate, protocol, resolution, connection} {
		if text := reason(err); text != "" {
			return failure{text, err}
		}
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return failure{fmt.Sprintf("no answer within spec.timeoutSeconds %d", timeout/time.Second), err}
	}
	return failure{"extension cannot be reached", err}
}

// certificate explains why the certificate of an extension is not trusted.
func certificate(err error) string {
	if host, ok := errors.AsType[x509.HostnameError](err); ok {
		return fmt.Sprintf("extension's certificate is not for %s", host.Host)
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		if invalid.Reason == x509.Expired {
			return "extension's certificate has expired or is not valid yet"
		}
		return "extension's certificate is not valid"
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "extension's certificate is signed by an authority that spec.clientConfig.caBundle does not contain"
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "extension's certificate is not valid"
	}
	return ""
}

// protocol explains a failure of TLS or HTTP.
func protocol(err error) string {
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok || errors.Is(err, http.ErrSchemeMismatch) {
		return "extension does not speak TLS"
	}
	if alert, ok := errors.AsType[*net.OpError](err); ok && alert.Op == "remote error" {
		return fmt.Sprintf("extension refuses TLS: %v", alert.Err) // package tls reports an alert this way
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "extension closed the connection without an answer"
	}
	return ""
}

// resolution explains a failed DNS lookup.
func resolution(err error) string {
	dns, ok := errors.AsType[*net.DNSError](err)
	switch {
	case !ok:
		return ""
	case dns.IsNotFound:
		return fmt.Sprintf("host %s is not found", dns.Name)
	default:
		return fmt.Sprintf("the address of host %s cannot be resolved", dns.Name)
	}
}

// connection explains a network error.
func connection(err error) string {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	return ""
}
