package main

import (
	"math/rand/v2"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/calm"
	"github.com/tidemarkdb/tidemark/bench/proof/nemesis/links"
)

const ms = time.Millisecond

// kinds has all faults that the schedule can draw.
var kinds = []kind{
	{name: "kill -9 of a data node", weight: 12, shortest: 500 * ms, longest: 12 * time.Second,
		settles: calm.Restarts, begin: killNode},
	{name: "kill -9 of a core server", weight: 4, shortest: 500 * ms, longest: 12 * time.Second,
		settles: calm.Restarts, begin: killCore},
	{name: "kill -9 of several", weight: 5, shortest: 500 * ms, longest: 8 * time.Second,
		alone: true, settles: calm.Restarts, begin: killSeveral},
	{name: "kill -9 of all", weight: 3, shortest: 200 * ms, longest: 3 * time.Second, alone: true,
		settles: calm.Restarts, begin: killAll},
	{name: "stop (SIGTERM) of a server", weight: 4, shortest: 500 * ms, longest: 8 * time.Second,
		settles: calm.Restarts, begin: stopServer},
	{name: "pause of a data node", weight: 10, shortest: 500 * ms, longest: 15 * time.Second,
		settles: calm.Links, begin: pauseNode},
	{name: "pause of a core server", weight: 3, shortest: 500 * ms, longest: 15 * time.Second,
		settles: calm.Links, begin: pauseCore},
	{name: "pause of several", weight: 3, shortest: 500 * ms, longest: 8 * time.Second, alone: true,
		settles: calm.Links, begin: pauseSeveral},
	{name: "link cut one way", weight: 6, shortest: time.Second, longest: 15 * time.Second,
		settles: calm.Links, begin: cutOneWay},
	{name: "link cut both ways", weight: 5, shortest: time.Second, longest: 15 * time.Second,
		settles: calm.Links, begin: cutBothWays},
	{name: "server isolated", weight: 8, shortest: time.Second, longest: 15 * time.Second,
		settles: calm.Links, begin: isolate},
	{name: "server hears no other, or is not heard", weight: 6, shortest: time.Second,
		longest: 15 * time.Second, settles: calm.Links, begin: isolateOneWay},
	{name: "leader isolated from servers, not from clients", weight: 8, shortest: time.Second,
		longest: 15 * time.Second, settles: calm.Links, begin: isolateLeader},
	{name: "clients cut off from a server", weight: 3, shortest: time.Second,
		longest: 10 * time.Second, settles: calm.Links, begin: cutClients},
	{name: "servers split in two", weight: 5, shortest: time.Second, longest: 12 * time.Second,
		alone: true, settles: calm.Links, begin: split},
	{name: "slow links", weight: 6, shortest: 2 * time.Second, longest: 15 * time.Second,
		settles: calm.Links, begin: slowLinks},
	{name: "flapping links", weight: 6, shortest: 3 * time.Second, longest: 15 * time.Second,
		settles: calm.Links, begin: flap},
	{name: "disk full of one", weight: 5, shortest: 3 * time.Second, longest: 12 * time.Second,
		needs: needDisk, settles: calm.Room, begin: fillOne},
	{name: "disk full of all data nodes", weight: 2, shortest: 3 * time.Second,
		longest: 8 * time.Second, needs: needDisk, alone: true, settles: calm.Room, begin: fillAll},
	{name: "disk stalls", weight: 5, shortest: 500 * ms, longest: 12 * time.Second,
		needs: needDisk | needFreeze, settles: calm.Links, begin: stopDisk},
	{name: "disk is slow", weight: 5, shortest: 3 * time.Second, longest: 15 * time.Second,
		needs: needDisk | needFreeze, settles: calm.Links, begin: slowDisk},
	{name: "disk is slow for long", weight: 8, shortest: 28 * time.Second,
		longest: 32 * time.Second, needs: needDisk | needFreeze, alone: true, settles: calm.Links,
		begin: slowForLong},
	{name: "partitions split", weight: 6, shortest: 2 * time.Second, longest: 15 * time.Second,
		alone: true, settles: calm.Restarts, begin: splitPartitions},
	{name: "partitions merge", weight: 6, shortest: 2 * time.Second, longest: 15 * time.Second,
		alone: true, settles: calm.Restarts, begin: mergePartitions},
	{name: "replicas move", weight: 5, shortest: 2 * time.Second, longest: 15 * time.Second,
		alone: true, settles: calm.Restarts, begin: moveReplicas},
	{name: "node drained", weight: 3, shortest: 2 * time.Second, longest: 15 * time.Second,
		alone: true, settles: calm.Restarts, begin: drainNode},
	{name: "node decommissioned", weight: 5, shortest: 2 * time.Second, longest: 20 * time.Second,
		alone: true, settles: calm.Restarts, begin: retireNode},
	{name: "directory of a data node lost", weight: 3, shortest: 2 * time.Second,
		longest: 15 * time.Second, alone: true, settles: calm.Replacements, begin: loseDirectory},
	{name: "member of the core replaced", weight: 5, shortest: 3 * time.Second,
		longest: 20 * time.Second, alone: true, settles: calm.Restarts, begin: replaceMember},
	{name: "clock off, within the bound", weight: 6, shortest: 2 * time.Second,
		longest: 15 * time.Second, settles: calm.Clocks, begin: clockWithin},
}

// beyond is not among kinds, because operators promise clocks within the bound. The flag -beyond
// adds it. Servers notice a jump of a clock at once, and then do not serve. Servers would need some
// seconds to notice a clock that slowly drifts out of the bound; this fault makes no such drift.
var beyond = kind{name: "clock off, beyond the bound", weight: 10, shortest: 10 * time.Second,
	longest: 15 * time.Second, alone: true, settles: calm.Clocks, begin: clockBeyond}

// anyNode and anyCore draw a server of a role. anyServer draws any server.
func anyNode(random *rand.Rand) int   { return cores + random.IntN(nodes) }
func anyCore(random *rand.Rand) int   { return random.IntN(cores) }
func anyServer(random *rand.Rand) int { return random.IntN(cores + nodes) }

// allServers lists every server.
func allServers() []int {
	var list []int
	for i := range cores + nodes {
		list = append(list, i)
	}
	return list
}

// several draws at least two servers, and at most all servers but one.
func several(random *rand.Rand) []int {
	n := cores + nodes
	return random.Perm(n)[:2+random.IntN(n-2)]
}

// anyCut draws whether a cut is silent or refused.
func anyCut(random *rand.Rand) links.Shape {
	return links.Shape{Cut: true, Refused: random.IntN(3) == 0}
}
