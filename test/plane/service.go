// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"net"
	"slices"
	"sync"
)

// Service distributes connections to its ready endpoints in turn, as kube-proxy does. Open connections continue when an
// endpoint is not ready any more. It is safe for concurrent use.
type Service struct {
	// Address is its listen address.
	Address string

	listener net.Listener

	mu        sync.Mutex
	endpoints []string
	next      int
}

// NewService returns a Service without endpoints that listens on a port of this machine. It ends with Close, or with
// this process.
func NewService() (*Service, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it outlives the call
	if err != nil {
		return nil, err
	}
	s := &Service{Address: l.Addr().String(), listener: l}
	go s.serve()
	return s, nil
}

// SetReady sets whether an endpoint gets new connections.
func (s *Service) SetReady(endpoint string, ready bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch i := slices.Index(s.endpoints, endpoint); {
	case ready && i < 0:
		s.endpoints = append(s.endpoints, endpoint)
	case !ready && i >= 0:
		s.endpoints = slices.Delete(s.endpoints, i, i+1)
	}
}

// Close stops the listener. Open connections continue.
func (s *Service) Close() error { return s.listener.Close() }

func (s *Service) serve() {
	for {
		in, err := s.listener.Accept()
		if err != nil {
			return
		}
		endpoint, ok := s.pick()
		if !ok {
			_ = in.Close()
			continue
		}
		go pipe(in, endpoint)
	}
}

// pick returns the next endpoint.
func (s *Service) pick() (endpoint string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.endpoints) == 0 {
		return "", false
	}
	s.next++
	return s.endpoints[s.next%len(s.endpoints)], true
}
