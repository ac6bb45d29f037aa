package embedded

import (
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/deploy/embedded/memory"
	"github.com/tidemarkdb/tidemark/placement/store"
)

// MemoryLimit is the limit in bytes of a process that was given one, or the default for none (0):
// that of its control group, or half of the machine's memory, or GOMEMLIMIT if that is less.
func MemoryLimit(given int64) int64 { return findMemory(given).Bytes }

func findMemory(given int64) memory.Limit {
	if given > 0 {
		return memory.Limit{Bytes: given, Source: "the configuration"}
	}
	return memory.Find(environmentLimit)
}

// environmentLimit is Go's memory limit as the environment has set it (GOMEMLIMIT). It is read
// before TuneCollector sets another one.
var environmentLimit = debug.SetMemoryLimit(-1)

// memoryOfEach is the limit of each of so many servers of a process that was given a limit, or none
// (0).
func memoryOfEach(given int64, servers int) int64 {
	each := max(MemoryLimit(given)/int64(servers), 1)
	if given == 0 {
		each = max(each, memory.Least(memory.Needs{Node: true, Core: true}))
	}
	return each
}

// divideMemory sets the sizes of the server's parts. The roles are known.
func (s *Server) divideMemory() error {
	c := &s.config
	limit := findMemory(c.MemoryLimit)
	sizes, err := memory.Divide(limit.Bytes, memory.Needs{
		Node: c.has(RoleNode), Core: c.has(RoleCore), Cache: c.CacheBytes,
		MemTable: int64(c.MemTableBytes), LogMemTable: int64(c.LogMemTableBytes),
	})
	if err != nil {
		return fmt.Errorf("%w; the limit comes from %s: raise it, or set one (--memory-limit)", err,
			limit.Source)
	}
	s.memory, s.memoryFrom = sizes, limit.Source
	showMemory(c.Registry, sizes)
	return nil
}

// memoryDivided is how memory is divided, for the log, in bytes.
func (s *Server) memoryDivided() slog.Attr {
	attributes := []any{"limit", s.memory.Limit, "from", s.memoryFrom}
	for _, p := range s.memory.Parts() {
		attributes = append(attributes, slog.Int64(p.Name, p.Bytes))
	}
	return slog.Group("memory", attributes...)
}

// storeMemory are the bounds of the core's stores.
func storeMemory(s *memory.Sizes) store.Memory {
	return store.Memory{WatchQueues: int(s.WatchQueues), WatchRecent: int(s.WatchRecent),
		Newest: int(s.Newest), LargestAnswer: int(s.LargestAnswer), LargeAnswers: s.LargeAnswers}
}

// showMemory makes the metrics of how memory is divided.
func showMemory(r prometheus.Registerer, sizes *memory.Sizes) {
	limit := prometheus.NewGauge(prometheus.GaugeOpts{Name: "tidemark_memory_limit_bytes",
		Help: "How much memory the server may use."})
	limit.Set(float64(sizes.Limit))
	parts := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "tidemark_memory_part_bytes",
		Help: "How much of its memory limit the server gives each of its parts."}, []string{"use"})
	for _, p := range sizes.Parts() {
		parts.WithLabelValues(p.Name).Set(float64(p.Bytes))
	}
	replace(r, limit)
	replace(r, parts)
}

// DebugMemory is the page /debug/memory, in JSON: how the memory limit of a server is divided.
type DebugMemory struct {
	// Limit is in bytes, and so are the parts.
	Limit int64             `json:"limit"`
	Parts []DebugMemoryPart `json:"parts"`
}

// DebugMemoryPart is one part on the page /debug/memory.
type DebugMemoryPart struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

func (s *Server) debugMemory() DebugMemory {
	page := DebugMemory{Limit: s.memory.Limit}
	for _, p := range s.memory.Parts() {
		page.Parts = append(page.Parts, DebugMemoryPart{p.Name, p.Bytes})
	}
	return page
}
