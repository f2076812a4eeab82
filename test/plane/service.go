// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"net"
	"slices"
	"sync"
)

// A Service passes connections on to those of its endpoints that are ready, in turns, as kube-proxy
// does. A connection that is there stays, ready or not. Its methods may be called from any goroutine.
type Service struct {
	// Address is where it listens.
	Address string

	listener net.Listener

	mu        sync.Mutex
	endpoints []string
	next      int
}

// NewService listens on a port of this machine, and has no endpoints yet. It ends with Close, or with
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

// SetReady says whether an endpoint gets new connections.
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

// Close ends it. Connections that are there stay.
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

// pick is the endpoint whose turn it is.
func (s *Service) pick() (endpoint string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.endpoints) == 0 {
		return "", false
	}
	s.next++
	return s.endpoints[s.next%len(s.endpoints)], true
}
