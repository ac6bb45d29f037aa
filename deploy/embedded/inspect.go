package embedded

import (
	"github.com/tidemarkdb/tidemark/range/host"
	"github.com/tidemarkdb/tidemark/range/node"
)

// Node is the data node inside the server, for debugging and tests; nil before it has joined, and in a server that is none.
func (s *Server) Node() *node.Node {
	s.parts.Lock()
	defer s.parts.Unlock()
	if s.parts.node == nil {
		return nil
	}
	return s.parts.node.node
}

// CoreHost is the Raft host of the server's member of the consistent core, for debugging and tests; nil before there is one.
func (s *Server) CoreHost() *host.Host {
	s.parts.Lock()
	defer s.parts.Unlock()
	if s.parts.core == nil {
		return nil
	}
	return s.parts.core.host
}
