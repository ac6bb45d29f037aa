package embedded

import (
	"net/http"

	"github.com/tidemarkdb/tidemark/deploy/embedded/web"
)

// DebugReplicas is the page /debug/replicas, in JSON: a server's view of its own part in the
// cluster. It is for tests and for people that look for a fault. Its fields may change.
type DebugReplicas struct {
	// Node is the data node's id, or 0 if there is none.
	Node uint64 `json:"node"`
	// LeadsCore is set if the server's member leads the consistent core.
	LeadsCore bool           `json:"leads_core"`
	Replicas  []DebugReplica `json:"replicas"`
}

// DebugReplica is one replica on the page /debug/replicas.
type DebugReplica struct {
	Partition uint64   `json:"partition"`
	Replica   uint64   `json:"replica"`
	Leader    uint64   `json:"leader"`
	Leads     bool     `json:"leads"`
	Term      uint64   `json:"term"`
	Applied   uint64   `json:"applied"`
	Peers     []uint64 `json:"peers"`
	// Failed is the reason why the replica has failed. It is empty if the replica works.
	Failed string `json:"failed,omitempty"`
	// Checksum is a checksum of all replicated data of the partition, at the applied index ChecksumAt.
	// They are set if the page was requested with ?checksums=true, which reads all data. ChecksumError
	// says why there is no checksum.
	Checksum      uint64 `json:"checksum,omitempty"`
	ChecksumAt    uint64 `json:"checksum_at,omitempty"`
	ChecksumError string `json:"checksum_error,omitempty"`
}

// debugPages adds
//
//	/debug/replicas                  the replicas on this server (DebugReplicas)
//	/debug/replicas?checksums=true   the same with checksums
//	/debug/memory                    how the memory limit is divided (DebugMemory)
func (s *Server) debugPages(mux *http.ServeMux) {
	web.DebugPage(mux, "/debug/replicas", func(r *http.Request) any {
		return s.debugReplicas(r.FormValue("checksums") == "true")
	})
	web.DebugPage(mux, "/debug/memory", func(*http.Request) any { return debugMemory(s.memory) })
}

// debugPages adds the same pages, with an array that has the page of each server.
func (c *Cluster) debugPages(mux *http.ServeMux) {
	web.DebugPage(mux, "/debug/replicas", func(r *http.Request) any {
		pages := []DebugReplicas{}
		for _, s := range c.running() {
			pages = append(pages, s.debugReplicas(r.FormValue("checksums") == "true"))
		}
		return pages
	})
	web.DebugPage(mux, "/debug/memory", func(*http.Request) any {
		pages := []DebugMemory{}
		for _, s := range c.running() {
			pages = append(pages, debugMemory(s.memory))
		}
		return pages
	})
}

func (s *Server) debugReplicas(checksums bool) DebugReplicas {
	page := DebugReplicas{Node: s.NodeID(), LeadsCore: s.LeadsCore(), Replicas: []DebugReplica{}}
	for _, r := range s.Replicas() {
		d := DebugReplica{
			Partition: r.Partition, Replica: r.Replica, Leader: r.Leader, Leads: r.Leads,
			Term: r.Term, Applied: r.Applied, Peers: r.Peers,
		}
		if r.Failed != nil {
			d.Failed = r.Failed.Error()
		}
		if checksums {
			var err error
			if d.ChecksumAt, d.Checksum, err = s.Checksum(r.Partition); err != nil {
				d.ChecksumError = err.Error()
			}
		}
		page.Replicas = append(page.Replicas, d)
	}
	return page
}
