package embedded

import (
	"context"
	"fmt"
	"strings"

	"github.com/tidemarkdb/tidemark/deploy/embedded/clusterauth"
	"github.com/tidemarkdb/tidemark/placement/server"
	"github.com/tidemarkdb/tidemark/placement/server/table"
	"github.com/tidemarkdb/tidemark/placement/server/veil"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// clusterService makes the service Cluster, which answers from the parts that run at the moment.
func (s *Server) clusterService() *server.ClusterService {
	return server.NewClusterService(server.ClusterConfig{
		MaxClockOffset: s.config.clock().MaxAhead(),
		SmallTable:     s.config.SmallTable,

		Client: s.core,
		Core:   s.member.server,
		Table: func() table.Source {
			if n := s.node.node(); n != nil {
				return n
			}
			return nil
		},
		Viewer: func(ctx context.Context) *veil.Viewer {
			if s.peers.Proved(ctx) == nil {
				return nil
			}
			return clusterauth.Viewer(ctx, s.auth.judge(), s.config.TLSCA != "")
		},
		Status:     s.Status,
		Registerer: s.config.Registry,
	})
}

// Status is what the server says of itself.
func (s *Server) Status() *clusterpb.StatusResponse {
	ready, reason, trouble := s.readiness()
	r := &clusterpb.StatusResponse{
		Cluster: s.cluster.Load(), Node: s.node.id.Load(), Ready: ready,
		WaitingFor: strings.ReplaceAll(reason, "\n", "; "),
		Version:    s.config.Version, CoreTrouble: trouble,
	}
	if reason != "" {
		r.Reasons = strings.Split(reason, "\n")
	}
	if n := s.node.node(); n != nil {
		var total int
		r.Leaderless, total, _ = n.Leaderless(maxLeaderless)
		r.LeaderlessTotal = uint64(total)
	}
	return r
}

// maxLeaderless bounds the partitions that a status names.
const maxLeaderless = 100

// lackOfRoom says, as the end of a sentence, that a part that is starting may wait for disk space;
// empty if there is enough.
func (s *Server) lackOfRoom() string {
	usage, err := s.config.FS.GetDiskUsage(s.config.Dir)
	if err != nil || usage.AvailBytes >= s.config.MinFreeBytes/4 {
		return ""
	}
	return fmt.Sprintf("; the disk of %s is full, %d bytes are left: free disk space", s.config.Dir,
		usage.AvailBytes)
}

// Ready says whether the server can be used, or why not: one reason a line.
func (s *Server) Ready() (bool, string) {
	ready, reason, _ := s.readiness()
	return ready, reason
}

// notReady lists why the server is not ready, one sentence each; nil if it is ready.
func (s *Server) notReady() []string {
	if ready, reason := s.Ready(); !ready {
		return strings.Split(reason, "\n")
	}
	return nil
}

// readiness says whether the server is ready, or why not; and what is wrong with the core if the
// core is the reason.
func (s *Server) readiness() (ready bool, reason string, trouble *clusterpb.CoreTrouble) {
	if err := s.Err(); err != nil {
		return false, err.Error(), nil
	}
	if s.stopping.Load() {
		return false, "the server is stopping", nil
	}
	core, data := s.member.server(), s.node.node()
	if s.member.bootstrap != nil {
		if broken := s.member.broken.Load(); broken != nil {
			return false, "the consistent core's member on this server does not open: " +
				(*broken).Error(), nil
		}
		state := s.member.state.Load()
		switch {
		case state == offeredToCore && !s.config.has(RoleNode):
			return false, "it offers itself as a member of the core, and waits to be added: `tidemark " +
				"core add " + s.config.Advertise + "`", nil
		case state == removedFromCore && !s.config.has(RoleNode):
			return false, "it was removed from the core, and has nothing else to do: stop it", nil
		}
		if core == nil && (state == lookingForCore || state == memberOfCore) {
			why := s.member.bootstrap.WaitingFor()
			if why == "" {
				return false, "the consistent core's member is starting" + s.lackOfRoom(), nil
			}
			return false, "the consistent core is forming: " + why, &clusterpb.CoreTrouble{
				NoQuorum: true,
				Silent:   s.member.bootstrap.Silent(),
			}
		}
		if core != nil && core.LeaderAddress() == "" {
			if e := core.Trouble(); e != nil {
				return false, e.Error(), e.Trouble()
			}
		}
	}
	if s.config.has(RoleNode) && !s.node.decommissioned.Load() {
		if data == nil {
			reason = "joining the cluster" + s.lackOfRoom()
			if e := s.core.Trouble(); e != nil {
				reason, trouble = reason+": "+e.Error(), e.Trouble()
			}
			return false, reason, trouble
		}
		ready, reason = data.Ready()
		if e := s.core.Trouble(); e != nil && !ready && !data.Table().Complete {
			reason, trouble = reason+": "+e.Error(), e.Trouble()
		}
		return ready, reason, trouble
	}
	return true, "", nil
}
