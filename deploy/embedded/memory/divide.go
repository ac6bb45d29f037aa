package memory

import "fmt"

// MiB is the unit of the table of shares.
const MiB = 1 << 20

// Needs describes the server whose memory is divided.
type Needs struct {
	// Node and Core are the roles of the server.
	Node, Core bool
	// Cache, MemTable and LogMemTable are sizes in bytes that the user has set. 0 means that the size
	// is derived from the limit. Cache and MemTable are for the data node. LogMemTable is for each
	// Raft log.
	Cache, MemTable, LogMemTable int64
}

// Sizes are the sizes in bytes of the parts of a server. Sizes of a role that the server does not
// have are 0.
type Sizes struct {
	// Limit is the limit that was divided.
	Limit int64

	// Cache is the size of the block cache of the data. Pebble counts the memtables of the data
	// against it.
	Cache int64
	// MemTable is the size of one memtable of the data. See memTables for their number.
	MemTable int64
	// LogMemTable is the size of one memtable of the data node's Raft log. LogCache is the size of the
	// block cache of that log.
	LogMemTable, LogCache int64
	// CoreMemTable and CoreCache are the sizes for the core's state. CoreLogMemTable and CoreLogCache
	// are the sizes for the core's Raft log.
	CoreMemTable, CoreCache       int64
	CoreLogMemTable, CoreLogCache int64

	// Requests limits the memory of clients' requests: requests of the data path together with answers
	// that wait to be sent, and decoded messages of gRPC calls.
	Requests int64
	// Receiving limits the messages of gRPC calls that are not completely received.
	Receiving int64
	// Answers limits large answers of the etcd API that are being sent to clients.
	Answers int64
	// Forwarded limits requests of the etcd API that are forwarded to another server.
	Forwarded int64
	// Gateway limits requests of the etcd API as JSON.
	Gateway int64
	// LargeAnswers is the number of answers of up to LargestAnswer bytes that are read from the core's
	// stores at a time.
	LargeAnswers  int
	LargestAnswer int64

	// RaftPending limits entries that wait for the data node's Raft log. RaftInbox limits received
	// messages of peers that wait to be processed. CoreRaftPending and CoreRaftInbox are the same for
	// the core's member.
	RaftPending, RaftInbox         int64
	CoreRaftPending, CoreRaftInbox int64
	// PeerQueues limits the messages that wait to be sent to other servers, for each of the two roles.
	PeerQueues int64

	// Commands limits the commands of each of the core's two stores whose outcome is not known yet.
	Commands int64
	// WatchQueues limits events that wait for watchers. WatchRecent limits the newest events that are
	// kept in memory for watchers. Both are for each of the two stores.
	WatchQueues, WatchRecent int64
	// Newest limits the newest versions of keys that each of the two stores remembers.
	Newest int64

	// Reads limits the timestamp caches of all partitions together. Recent limits the recently written
	// keys that the leaders of partitions remember.
	Reads, Recent int64

	// Garbage is the amount of garbage that may accumulate between two collections.
	Garbage int64

	parts []Part
}

// Part is a part of a server, and its size.
type Part struct {
	Name  string
	Bytes int64
}

// Parts returns all parts. Together they are at most the limit.
func (s *Sizes) Parts() []Part { return s.parts }

// Tables returns the maximum size of block caches and memtables. In a program built with cgo, Go's
// garbage collector does not manage that memory.
func (s *Sizes) Tables() (bytes int64) {
	for _, p := range s.parts {
		switch p.Name {
		case partCache, partLog, partCoreLog, partCoreState:
			bytes += p.Bytes
		}
	}
	return bytes
}

// memTables is the maximum size of all memtables of an engine, in quarters of a memtable: four
// memtables that wait to be flushed, and a quarter that is written before the engine checks again
// (package range/engine).
const memTables = 17

func tablesOf(memTable int64) int64 { return memTable * memTables / 4 }

// base is the memory of a process for its code, stacks, connections and small tables. baseOfRole is
// the additional memory of each role.
const (
	base       = 32 * MiB
	baseOfRole = 8 * MiB
)

// The names of the parts.
const (
	partBase        = "base"
	partGarbage     = "garbage"
	partCache       = "cache"
	partLog         = "raft-log"
	partPending     = "raft-pending"
	partInbox       = "raft-inbox"
	partReads       = "reads"
	partRecent      = "recent-writes"
	partRequests    = "requests"
	partReceiving   = "receiving"
	partPeers       = "peers"
	partCoreLog     = "core-raft-log"
	partCoreState   = "core-state"
	partCorePending = "core-raft-pending"
	partCoreInbox   = "core-raft-inbox"
	partCommands    = "core-commands"
	partAnswers     = "answers"
	partForwarded   = "forwarded"
	partLargeReads  = "core-large-reads"
	partGateway     = "gateway"
	partWatch       = "core-watch"
	partNewest      = "core-newest"
)

// share is the share of a part in a limit. least and most are in bytes.
type share struct {
	name        string
	weight      int64
	least, most int64
}

const (
	largestMemTable     = 64 * MiB
	largestLogMemTable  = 16 * MiB
	largestCoreMemTable = 8 * MiB
	// partsOfLog is the size of a Raft log's memtables and block cache, in quarters of a memtable.
	partsOfLog       = memTables + 4
	largestAnswer    = 64 * MiB
	mostLargeAnswers = 4
	mostRecentEvents = 8 * MiB
)

// shares returns the shares of a server with these needs, without the parts whose sizes are set.
func shares(limit int64, n Needs) (all []share) {
	all = append(all,
		share{partGarbage, 32, 24 * MiB, limit / 3},
		share{partRequests, 20, 20 * MiB, 1024 * MiB},
		share{partReceiving, 8, 8 * MiB, 256 * MiB},
		share{partPeers, 8, 6 * MiB, 256 * MiB},
		share{partAnswers, 10, 16 * MiB, 512 * MiB},
		share{partForwarded, 3, 8 * MiB, 128 * MiB},
		share{partGateway, 3, 8 * MiB, 128 * MiB})
	if n.Node {
		all = append(all,
			share{partPending, 8, 8 * MiB, 256 * MiB},
			share{partInbox, 8, 8 * MiB, 320 * MiB},
			share{partReads, 4, 2 * MiB, 256 * MiB},
			share{partRecent, 3, MiB, 48 * MiB})
		if n.Cache == 0 {
			least := max(16*MiB, tablesOf(n.MemTable))
			all = append(all, share{partCache, 52, least, max(least, limit*3/10)})
		}
		if n.LogMemTable == 0 {
			all = append(all, share{partLog, 12, 10 * MiB, largestLogMemTable * partsOfLog / 4})
		}
	}
	if n.Core {
		all = append(all,
			share{partCoreState, 8, 8 * MiB, 64*MiB + tablesOf(largestCoreMemTable)},
			share{partCorePending, 4, 8 * MiB, 256 * MiB},
			share{partCoreInbox, 4, 8 * MiB, 320 * MiB},
			share{partCommands, 4, 10 * MiB, 128 * MiB},
			share{partLargeReads, 10, 16 * MiB, mostLargeAnswers * largestAnswer},
			share{partWatch, 6, 8 * MiB, 2 * (256*MiB + mostRecentEvents)},
			share{partNewest, 4, 4 * MiB, 2 * 64 * MiB})
		if n.LogMemTable == 0 {
			all = append(all, share{partCoreLog, 6, 6 * MiB, largestLogMemTable * partsOfLog / 4})
		}
	}
	return all
}

// given returns the parts whose sizes do not depend on the limit.
func given(n Needs) (all []Part) {
	fixed := Part{partBase, base}
	for _, has := range []bool{n.Node, n.Core} {
		if has {
			fixed.Bytes += baseOfRole
		}
	}
	all = append(all, fixed)
	if n.Node && n.Cache > 0 {
		all = append(all, Part{partCache, max(n.Cache, tablesOf(n.MemTable))})
	}
	if n.LogMemTable > 0 {
		if n.Node {
			all = append(all, Part{partLog, n.LogMemTable * partsOfLog / 4})
		}
		if n.Core {
			all = append(all, Part{partCoreLog, n.LogMemTable * partsOfLog / 4})
		}
	}
	return all
}

// TooLittle is the error for a limit with which a server cannot run.
type TooLittle struct {
	// Limit is the limit in bytes. Least is the lowest limit with which the server runs.
	Limit, Least int64
}

// Error implements error.
func (e *TooLittle) Error() string {
	return fmt.Sprintf("a memory limit of %d MiB is too low: this server needs at least %d MiB",
		e.Limit/MiB, (e.Least+MiB-1)/MiB)
}

// Least returns the lowest limit in bytes with which a server with these needs runs.
func Least(n Needs) (bytes int64) {
	for _, p := range given(n) {
		bytes += p.Bytes
	}
	for _, s := range shares(0, n) {
		bytes += s.least
	}
	return bytes
}

// Divide divides a limit in bytes among the parts of a server. The error is a *TooLittle.
func Divide(limit int64, n Needs) (*Sizes, error) {
	left := limit
	parts := given(n)
	for _, p := range parts {
		left -= p.Bytes
	}
	if least := Least(n); limit < least {
		return nil, &TooLittle{limit, least}
	}
	all := shares(limit, n)
	// The highest level is found by bisection, from the highest bit down. At level 0 all parts have
	// their least sizes, which fit.
	level := int64(0)
	for bit := int64(1) << 46; bit > 0; bit >>= 1 {
		if sum(all, level+bit) <= left {
			level += bit
		}
	}
	s := &Sizes{Limit: limit}
	for _, x := range all {
		parts = append(parts, Part{x.name, x.at(level)})
	}
	s.parts = parts
	s.fill(n)
	return s, nil
}

// levelUnit is the unit of levels, as a fraction of a weight, so that small levels differ.
const levelUnit = 1 << 10

// at returns the size of a share at a level.
func (s share) at(level int64) int64 {
	if level > s.most/s.weight*levelUnit {
		return max(s.least, s.most) // even if the product would overflow
	}
	return max(s.least, min(s.most, s.weight*level/levelUnit))
}

func sum(all []share, level int64) (bytes int64) {
	for _, s := range all {
		bytes += s.at(level)
	}
	return bytes
}

// fill sets the fields from the parts.
func (s *Sizes) fill(n Needs) {
	of := make(map[string]int64, len(s.parts))
	for _, p := range s.parts {
		of[p.Name] = p.Bytes
	}
	s.Garbage, s.Requests, s.Receiving = of[partGarbage], of[partRequests], of[partReceiving]
	s.PeerQueues, s.Answers = of[partPeers], of[partAnswers]
	s.Forwarded, s.Gateway = of[partForwarded], of[partGateway]
	if n.Node && n.Core {
		s.PeerQueues /= 2
	}
	if n.Node {
		s.Cache, s.MemTable = of[partCache], n.MemTable
		if n.Cache > 0 {
			s.Cache = n.Cache
		}
		if s.MemTable == 0 {
			// Half of the cache is left for blocks when all memtables are full.
			s.MemTable = max(min(of[partCache]*2/memTables, largestMemTable), MiB)
		}
		s.LogMemTable, s.LogCache = tables(of[partLog], n.LogMemTable)
		s.RaftPending, s.RaftInbox = of[partPending], of[partInbox]*4/5
		s.Reads, s.Recent = of[partReads], of[partRecent]
	}
	if n.Core {
		s.CoreLogMemTable, s.CoreLogCache = tables(of[partCoreLog], n.LogMemTable)
		s.CoreMemTable = min(of[partCoreState]/12, largestCoreMemTable)
		s.CoreCache = of[partCoreState] - tablesOf(s.CoreMemTable)
		s.CoreRaftPending, s.CoreRaftInbox = of[partCorePending], of[partCoreInbox]*4/5
		s.Commands = of[partCommands] / 2
		s.LargestAnswer = min(of[partLargeReads]/2, largestAnswer)
		s.LargeAnswers = int(min(of[partLargeReads]/s.LargestAnswer, mostLargeAnswers))
		s.WatchRecent = min(of[partWatch]/16, mostRecentEvents)
		s.WatchQueues = of[partWatch]/2 - s.WatchRecent
		s.Newest = of[partNewest] / 2
	}
}

// tables divides bytes between the memtable of a Raft log and its block cache.
func tables(bytes, memTable int64) (table, cache int64) {
	if memTable == 0 {
		memTable = bytes * 4 / partsOfLog
	}
	return memTable, min(max(bytes-tablesOf(memTable), 0), 8*MiB)
}
