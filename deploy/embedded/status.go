package embedded

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/deploy/embedded/clusterauth"
	"github.com/tidemarkdb/tidemark/deploy/embedded/datadir"
	"github.com/tidemarkdb/tidemark/deploy/embedded/examine"
	"github.com/tidemarkdb/tidemark/placement/server"
	"github.com/tidemarkdb/tidemark/placement/server/table"
	"github.com/tidemarkdb/tidemark/placement/server/veil"
	"github.com/tidemarkdb/tidemark/range/node"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/diagnosispb"
)

// clusterService makes the service Cluster, which answers from the parts that are running.
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
		Status:      s.Status,
		LoadHistory: s.loadHistory,
		Examiner:    s.examiner,
		Registerer:  s.config.Registry,
	})
}

// loadHistory returns the load of the server's data node in the last hour.
func (s *Server) loadHistory(q *clusterpb.LoadHistoryRequest) *clusterpb.LoadHistoryResponse {
	n := s.node.node()
	if n == nil {
		return &clusterpb.LoadHistoryResponse{}
	}
	r := node.HistoryOf(n).Since(q)
	r.Node = s.node.id.Load()
	return r
}

// Status returns the server's report about itself.
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

// maxLeaderless limits the partitions that a status names.
const maxLeaderless = 100

// lackOfRoom returns the end of a sentence which says that a part that is starting may wait for
// disk space. It is empty if there is enough space.
func (s *Server) lackOfRoom() string {
	usage, err := s.config.FS.GetDiskUsage(s.config.Dir)
	if err != nil || usage.AvailBytes >= s.config.MinFreeBytes/4 {
		return ""
	}
	return fmt.Sprintf("; the disk of %s is full, %d bytes are left: free disk space", s.config.Dir,
		usage.AvailBytes)
}

// Ready reports whether the server can be used. If not, it returns the reasons, one in each line.
func (s *Server) Ready() (bool, string) {
	ready, reason, _ := s.readiness()
	return ready, reason
}

// notReady lists the reasons why the server is not ready, one sentence each. It returns nil if the
// server is ready.
func (s *Server) notReady() []string {
	if ready, reason := s.Ready(); !ready {
		return strings.Split(reason, "\n")
	}
	return nil
}

// readiness reports whether the server is ready, and the reason if it is not. trouble describes the
// problem of the core if the core is the reason.
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

// newExaminer makes the examiner of this server.
func (s *Server) newExaminer() *examine.Examiner {
	config := examine.Config{
		Address: s.config.Advertise, Cluster: s.cluster.Load, About: s.describe,
		Known: s.knowsServer, Conn: s.dialer.Conn,
		Wall: func() int64 {
			wall, _ := s.clock.PhysicalReading()
			return wall
		},
		MemoryLimit: s.memory.Limit, Metrics: s.config.Registry, Log: s.recentLog,
	}
	for _, f := range []examine.CertificateFile{
		{Path: s.config.TLSCert, Kind: "server"},
		{Path: s.config.TLSCA, Kind: "clients' authority"},
		{Path: s.config.TLSPeerCA, Kind: "servers' authority"},
	} {
		if f.Path != "" {
			config.Certificates = append(config.Certificates, f)
		}
	}
	return examine.New(config)
}

// describe reports what the server's parts know, for examine.Config.About.
func (s *Server) describe(x *diagnosispb.Examination) {
	x.Version, x.NotReady = s.config.Version, s.notReady()
	x.Clock.MaxOffsetMicros = uint64(s.config.MaxOffset.Microseconds())
	if p := s.node.part.Load(); p != nil {
		h := p.node.Host()
		x.Node = s.node.id.Load()
		x.Disks = append(x.Disks, examine.DiskOf(datadir.Node, s.config.FS, p.databases, h))
		examine.Delayed(x.Processor, h)
		stats := p.node.Stats()
		x.Processor.UsedMicro = stats.GetLoadMicro()
		if stats.GetClockUnhealthy() {
			x.Clock.Distrust = "the clock is wrong, or those of most others are: the node serves nothing"
		}
	}
	if p := s.member.part.Load(); p != nil {
		x.Member = uint64(p.self)
		x.Disks = append(x.Disks, examine.DiskOf(datadir.Core, s.config.FS, p.databases, p.host))
		examine.Delayed(x.Processor, p.host)
	}
	c := &s.config
	setting := func(same bool, name string, value any) {
		x.Settings = append(x.Settings,
			&diagnosispb.Setting{Name: name, Value: fmt.Sprint(value), Same: same})
	}
	setting(true, "max-offset", c.MaxOffset)
	setting(true, "kernel-clock-bound", c.KernelBound)
	setting(true, "tick", c.Tick)
	setting(true, "election-ticks", c.ElectionTicks)
	setting(true, "max-request-bytes", c.MaxRequestBytes)
	// Only members of the core read these.
	setting(c.has(RoleCore), "max-txn-ops", c.MaxOperations)
	setting(c.has(RoleCore), "core-history", c.CoreHistory)
	setting(true, "tls", c.TLSCert != "")
	setting(true, "insecure", c.Insecure)
	setting(false, "roles", strings.Join(c.Roles, ","))
	setting(false, "locality", "region="+c.Region+",zone="+c.Zone)
	setting(false, "listen", c.Listen)
	setting(false, "http", c.HTTP)
	setting(false, "http-debug-for-all", c.HTTPDebugForAll)
	setting(false, "memory-limit", s.memory.Limit)
	setting(false, "min-free", c.MinFreeBytes)
	setting(false, "core-quota", c.CoreQuota)
	setting(false, "gc-interval", c.GCInterval)
}

// knowsServer reports whether an address belongs to a server of the cluster, according to this
// server or the core's leader.
func (s *Server) knowsServer(ctx context.Context, address string) bool {
	if slices.Contains(s.member.addresses(), address) || slices.Contains(s.core.Core(), address) {
		return true
	}
	is := func(n *clusterpb.Node) bool { return n.GetAddress() == address }
	if n := s.node.node(); n != nil && slices.ContainsFunc(n.Table().Nodes(), is) {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	r, err := s.core.ListNodes(ctx, &clusterpb.ListNodesRequest{})
	return err == nil && slices.ContainsFunc(r.GetNodes(), is)
}
