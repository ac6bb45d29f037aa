package memory

import "fmt"

// MiB is the unit of the table of shares.
const MiB = 1 << 20

// Needs is what a server's memory is divided for.
type Needs struct {
	// Node and Core are the roles of the server.
	Node, Core bool
	// Cache, MemTable and LogMemTable are sizes in bytes that were given by the user; 0: by the
	// limit. Cache and MemTable are those of the data node, LogMemTable is that of each Raft log.
	Cache, MemTable, LogMemTable int64
}

// Sizes are the sizes in bytes of the parts of a server. Sizes of a role that the server does not
// have are 0.
type Sizes struct {
	// Limit is what was divided.
	Limit int64

	// Cache is the block cache of the data. Pebble counts the memtables of the data against it.
	Cache int64
	// MemTable is one memtable of the data; there are up to memTables.
	MemTable int64
	// LogMemTable is one memtable of the data node's Raft log, LogCache the block cache of that log.
	LogMemTable, LogCache int64
	// CoreMemTable and CoreCache are those of the core's state, CoreLogMemTable and CoreLogCache
	// those of the core's Raft log.
	CoreMemTable, CoreCache       int64
	CoreLogMemTable, CoreLogCache int64

	// Requests bounds what clients' requests take: those of the data path with what waits to be
	// sent to clients, and decoded messages of gRPC calls.
	Requests int64
	// Receiving bounds messages of gRPC calls that are not complete.
	Receiving int64
	// Answers bounds large answers of the etcd API that are on their way to clients.
	Answers int64
	// Forwarded bounds requests of the etcd API that are passed on to another server.
	Forwarded int64
	// Gateway bounds requests of the etcd API as JSON.
	Gateway int64
	// LargeAnswers is how many answers of up to LargestAnswer bytes are read from the core's stores at
	// a time.
	LargeAnswers  int
	LargestAnswer int64

	// RaftPending bounds entries that wait for the data node's Raft log, RaftInbox messages of peers
	// that were received and not looked at. CoreRaftPending and CoreRaftInbox are the same of the
	// core's member.
	RaftPending, RaftInbox         int64
	CoreRaftPending, CoreRaftInbox int64
	// PeerQueues bounds what waits to be sent to other servers, for each of the two roles.
	PeerQueues int64

	// Commands bounds the commands of each of the core's two stores whose outcome is open.
	Commands int64
	// WatchQueues bounds events that wait for watchers, WatchRecent the newest events that are kept
	// in memory for watchers, both in each of the two stores.
	WatchQueues, WatchRecent int64
	// Newest bounds the newest versions of keys that each of the two stores remembers.
	Newest int64

	// Reads bounds the timestamp caches of all partitions together, Recent the recently written keys
	// that the leaders of partitions remember.
	Reads, Recent int64

	// Garbage is what the garbage collector may leave between two collections.
	Garbage int64

	parts []Part
}

// Part is a part of a server, and its size.
type Part struct {
	Name  string
	Bytes int64
}

// Parts are all parts. Together they are at most the limit.
func (s *Sizes) Parts() []Part { return s.parts }

// Tables is what block caches and memtables take at most. In a program that was built with cgo
// that is memory which Go's garbage collector does not know of.
func (s *Sizes) Tables() (bytes int64) {
	for _, p := range s.parts {
		switch p.Name {
		case partCache, partLog, partCoreLog, partCoreState:
			bytes += p.Bytes
		}
	}
	return bytes
}

// memTables is how many memtables an engine has at most, in quarters: four that wait to be flushed,
// and a quarter that is written until that is noticed (package range/engine).
const memTables = 17

func tablesOf(memTable int64) int64 { return memTable * memTables / 4 }

// base is what a process takes for its code, stacks, connections and tables of small things, and
// baseOfRole what each role adds.
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

// share is how a part takes its part of a limit. least and most are in bytes.
type share struct {
	name        string
	weight      int64
	least, most int64
}

const (
	largestMemTable     = 64 * MiB
	largestLogMemTable  = 16 * MiB
	largestCoreMemTable = 8 * MiB
	// partsOfLog is how many quarters of a memtable a Raft log's memtables and block cache take.
	partsOfLog       = memTables + 4
	largestAnswer    = 64 * MiB
	mostLargeAnswers = 4
	mostRecentEvents = 8 * MiB
)

// shares are the shares of a server with these needs. What is given is not among them.
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

// given are the parts whose sizes do not depend on the limit.
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

// TooLittle is returned for a limit at which a server cannot run.
type TooLittle struct {
	// Limit is the limit in bytes, Least the lowest at which the server runs.
	Limit, Least int64
}

// Error implements error.
func (e *TooLittle) Error() string {
	return fmt.Sprintf("a memory limit of %d MiB is too low: this server needs at least %d MiB",
		e.Limit/MiB, (e.Least+MiB-1)/MiB)
}

// Least is the lowest limit in bytes at which a server with these needs runs.
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

// levelUnit is the part of a weight that a level is counted in, so that small levels differ.
const levelUnit = 1 << 10

// at is the size of a share at a level.
func (s share) at(level int64) int64 {
	if level > s.most/s.weight*levelUnit {
		return max(s.least, s.most) // also where the product would overflow
	}
	return max(s.least, min(s.most, s.weight*level/levelUnit))
}

func sum(all []share, level int64) (bytes int64) {
	for _, s := range all {
		bytes += s.at(level)
	}
	return bytes
}

// fill sets the fields by the parts.
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

// tables are the memtable of a Raft log and its block cache, which together take so many bytes.
func tables(bytes, memTable int64) (table, cache int64) {
	if memTable == 0 {
		memTable = bytes * 4 / partsOfLog
	}
	return memTable, min(max(bytes-tablesOf(memTable), 0), 8*MiB)
}
