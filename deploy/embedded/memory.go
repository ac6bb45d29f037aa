package embedded

import (
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/tidemarkdb/tidemark/deploy/embedded/memory"
	"github.com/tidemarkdb/tidemark/placement/store"
)

// MemoryLimit returns the memory limit of a process in bytes. given is the configured limit. If it
// is 0, the limit is that of the control group, or half of the machine's memory, or GOMEMLIMIT if
// that is less.
func MemoryLimit(given int64) int64 { return findMemory(given).Bytes }

func findMemory(given int64) memory.Limit {
	if given > 0 {
		return memory.Limit{Bytes: given, Source: "the configuration"}
	}
	return memory.Find(environmentLimit)
}

// environmentLimit is Go's memory limit from the environment (GOMEMLIMIT). It is read before
// TuneCollector sets another limit.
var environmentLimit = debug.SetMemoryLimit(-1)

// memoryOfEach returns the limit for each of several servers of a process. given is the configured
// limit of the process, or 0.
func memoryOfEach(given int64, servers int) int64 {
	each := max(MemoryLimit(given)/int64(servers), 1)
	if given == 0 {
		each = max(each, memory.Least(memory.Needs{Node: true, Core: true}))
	}
	return each
}

// divideMemory divides a server's memory among its parts, and returns where the limit comes from.
// The roles must be known.
func divideMemory(c *ServerConfig) (_ *memory.Sizes, source string, _ error) {
	limit := findMemory(c.MemoryLimit)
	sizes, err := memory.Divide(limit.Bytes, memory.Needs{
		Node: c.has(RoleNode), Core: c.has(RoleCore), Cache: c.CacheBytes,
		MemTable: int64(c.MemTableBytes), LogMemTable: int64(c.LogMemTableBytes),
	})
	if err != nil {
		return nil, "", fmt.Errorf("%w; the limit comes from %s: raise it, or set one (--memory-limit)", err,
			limit.Source)
	}
	showMemory(c.Registry, sizes)
	return sizes, limit.Source, nil
}

// memoryDivided returns the division of memory for the log, in bytes.
func memoryDivided(sizes *memory.Sizes, source string) slog.Attr {
	attributes := []any{"limit", sizes.Limit, "from", source}
	for _, p := range sizes.Parts() {
		attributes = append(attributes, slog.Int64(p.Name, p.Bytes))
	}
	return slog.Group("memory", attributes...)
}

// storeMemory returns the memory limits of the core's stores.
func storeMemory(s *memory.Sizes) store.Memory {
	return store.Memory{WatchQueues: int(s.WatchQueues), WatchRecent: int(s.WatchRecent),
		Newest: int(s.Newest), LargestAnswer: int(s.LargestAnswer), LargeAnswers: s.LargeAnswers}
}

// DebugMemory is the page /debug/memory, in JSON: the division of a server's memory limit.
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

func debugMemory(sizes *memory.Sizes) DebugMemory {
	page := DebugMemory{Limit: sizes.Limit}
	for _, p := range sizes.Parts() {
		page.Parts = append(page.Parts, DebugMemoryPart{p.Name, p.Bytes})
	}
	return page
}
