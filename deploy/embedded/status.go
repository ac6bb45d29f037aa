package embedded

import (
	"github.com/tidemarkdb/tidemark/placement/server"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// clusterService makes the Cluster service, which answers from the parts that are there at the moment.
func (s *Server) clusterService() *server.ClusterService {
	return server.NewClusterService(server.ClusterConfig{
		Client: s.core,
		Core: func() *server.Server {
			s.parts.Lock()
			defer s.parts.Unlock()
			if s.parts.core == nil {
				return nil
			}
			return s.parts.core.server
		},
		Table: func() server.TableSource {
			s.parts.Lock()
			defer s.parts.Unlock()
			if s.parts.node == nil {
				return nil
			}
			return s.parts.node.node
		},
		Status: s.status,
	})
}

func (s *Server) status() *clusterpb.StatusResponse {
	ready, reason := s.Ready()
	return &clusterpb.StatusResponse{
		Cluster: s.cluster.Load(), Node: s.node.Load(), Ready: ready, WaitingFor: reason, Version: s.config.Version,
	}
}
