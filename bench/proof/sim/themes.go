package sim

import (
	"fmt"
	"slices"
	"time"
)

// theme is a kind of storm: related faults at about the same time. What breaks a database is seldom
// a single fault.
type theme struct {
	name   string
	weight int
	draw   func(d *Dice, at time.Duration) []Fault
}

// themesFor returns the themes that fit a cluster.
func themesFor(d *Dice) []theme {
	themes := []theme{
		{"anything", 40, anything}, {"turnover", 25, turnover}, {"usurpation", 20, usurpation},
		{"blackout", 8, blackout},
		{"straggler", 8, straggler}, {"deposed", 12, deposed}, {"second thoughts", 12,
			secondThoughts},
	}
	if d.Epochs {
		// Other themes are rare here: the loss of a pending value has to be noticed, and other
		// faults would hide it.
		return []theme{{"lost epoch", 100, lostEpoch}, {"anything", 5, anything},
			{"turnover", 5, turnover}}
	}
	if d.Hasty {
		themes = append(themes, theme{"deposed", 60, deposed})
	}
	if d.Servers > d.Cores {
		themes = append(themes, theme{"migration", 25, migration})
	}
	if d.Transactions {
		themes = append(themes, theme{"undecided", 20, undecided})
	}
	if d.Wild {
		return append(themes, theme{"wrong clocks", 25, wrongClocks})
	}
	if d.Alone {
		return append(themes, theme{"clocks", 40, clocks})
	}
	return append(themes, theme{"replacement", 3, replacement})
}

// anything draws up to five faults of any kind within some seconds.
func anything(d *Dice, at time.Duration) (faults []Fault) {
	names, total := Kinds(), 0
	for _, name := range names {
		total += kinds[name].weight
	}
	for range d.Of(1, 1, 2, 3, 5) {
		n := d.IntN(total)
		for _, name := range names {
			if n -= kinds[name].weight; n < 0 {
				faults = append(faults, kinds[name].at(d, at+d.Between(0, 6*time.Second)))
				break
			}
		}
	}
	return faults
}

// fault makes a fault with the given effect.
func fault(at, lasts time.Duration, e Effect) Fault {
	return Fault{At: at.Round(time.Millisecond), For: lasts.Round(time.Millisecond), Effect: e}
}

// turnover transfers leadership many times in a row between servers whose clocks differ as much as
// they may, while slow disks delay entries. A new leader must respect the timestamps that its
// predecessor served.
func turnover(d *Dice, at time.Duration) (faults []Fault) {
	for i := range d.Servers {
		offset := []time.Duration{-maxClock, maxClock, d.Between(-maxClock, maxClock)}[d.IntN(3)]
		faults = append(faults, fault(at, 0, clockSet{Target(fmt.Sprint(i)), offset}))
		if d.IntN(3) == 0 {
			faults = append(faults, fault(at, 6*time.Second, slowDisk{Target(fmt.Sprint(i)),
				d.Between(10*time.Millisecond, 150*time.Millisecond)}))
		}
	}
	for range d.Of(1, 2, 4) {
		faults = append(faults, fault(at+d.Between(0, time.Second), 0, transfer{d.IntN(100),
			d.Of(2, 4, 8), d.Between(100*time.Millisecond, 900*time.Millisecond)}))
	}
	return faults
}

// migration drains or decommissions nodes and moves replicas, while servers that take part fail:
// the leader of the core, leaders of partitions, and receivers of replicas.
func migration(d *Dice, at time.Duration) (faults []Fault) {
	for range d.Of(1, 1, 2) {
		r := kinds["retire"].at(d, at+d.Between(0, 2*time.Second))
		effect := r.Effect.(retire)
		effect.Server = d.Cores + d.IntN(d.Servers-d.Cores)
		effect.Drain = d.IntN(6) == 0
		r.Effect = effect
		faults = append(faults, r)
	}
	for range d.Of(0, 1, 2) {
		faults = append(faults, kinds["move"].at(d, at+d.Between(0, 4*time.Second)))
	}
	for range d.Of(1, 2, 3) {
		when, target := at+d.Between(0, 15*time.Second), d.Server()
		if d.IntN(3) == 0 {
			target = "core"
		}
		switch d.IntN(4) {
		case 0:
			faults = append(faults, fault(when, d.Between(20*time.Millisecond, 4*time.Second),
				stop{target}))
		case 1:
			faults = append(faults, kinds["cut"].at(d, when), kinds["slow-disk"].at(d, when))
		default:
			faults = append(faults, fault(when, d.Between(20*time.Millisecond, 6*time.Second),
				crash{target, d.Of(0, 50, 100)}))
		}
	}
	return faults
}

// clocks sets the clocks as far apart as they may be.
func clocks(d *Dice, at time.Duration) (faults []Fault) {
	for i := range d.Servers {
		faults = append(faults, fault(at, 0, clockSet{Target(fmt.Sprint(i)),
			[]time.Duration{-maxClock, maxClock}[d.IntN(2)]}))
	}
	return faults
}

// usurpation is a test of a follower's promise to its leader. One follower does not hear the leader
// and campaigns. The other follower has just restarted and forgotten its promise. If it breaks the
// promise, the old leader and the clients that reach only the old leader learn too late of the new
// leader. The campaigning follower can win only if nothing was written meanwhile, so all of it is
// short.
func usurpation(d *Dice, at time.Duration) []Fault {
	timeout := time.Second
	if d.Hasty {
		timeout = 150 * time.Millisecond
	}
	partition := d.IntN(100)
	follower := d.IntN(2)
	leader := Target(fmt.Sprintf("leader.%d", partition))
	campaigns, restarts := Target(fmt.Sprintf("follower.%d.%d", partition, follower)),
		Target(fmt.Sprintf("follower.%d.%d", partition, 1-follower))
	apart := leadersApart.at(d, at+d.Between(timeout*3/4, 2*timeout))
	cutOff := apart.Effect.(leaderApart)
	cutOff.Server, cutOff.Mode = leader, broken
	apart.Effect, apart.For = cutOff, d.Between(timeout, 3*timeout)
	return []Fault{
		fault(at, apart.At+apart.For-at, between{leader, campaigns, silent}),
		fault(apart.At, d.Between(0, 30*time.Millisecond), crash{restarts, d.Of(0, 50, 100)}),
		apart,
	}
}

// secondThoughts is a test of durable votes. A leader hands over to a follower that the other
// follower cannot hear. The former leader votes for the new leader and loses its power at that
// moment. The new leader is cut off. So the other follower campaigns too, in the same term, and
// asks a replica that has voted already.
func secondThoughts(d *Dice, at time.Duration) []Fault {
	timeout := time.Second
	if d.Hasty {
		timeout = 150 * time.Millisecond
	}
	partition := d.IntN(100)
	first, second := Target(fmt.Sprintf("follower.%d.0", partition)),
		Target(fmt.Sprintf("follower.%d.1", partition))
	apart := d.Between(3*timeout, 6*timeout)
	return []Fault{
		fault(at, apart, between{first, second, silent}),
		fault(at+20*time.Millisecond, d.Between(50*time.Millisecond, 300*time.Millisecond),
			voterCrash{partition, d.Between(0, 2*time.Millisecond), d.Of(0, 0, 50, 100), apart}),
		fault(at+30*time.Millisecond, 0, transfer{partition, 1, 0}),
	}
}

// blackout takes the power from all servers at once, or from a majority one after the other, up to
// three times.
func blackout(d *Dice, at time.Duration) (faults []Fault) {
	for range d.Of(1, 2, 3) {
		unsynced := d.Of(0, 0, 50, 100)
		if d.IntN(2) == 0 {
			faults = append(faults, fault(at, d.Between(20*time.Millisecond, 2*time.Second),
				powerCut{unsynced, d.Between(0, 100*time.Millisecond)}))
		} else {
			for _, i := range d.Perm(d.Servers)[:d.Servers/2+1] {
				faults = append(faults, fault(at+d.Between(0, 300*time.Millisecond),
					d.Between(20*time.Millisecond, 3*time.Second), crash{Target(fmt.Sprint(i)),
						unsynced}))
			}
		}
		at += d.Between(3*time.Second, 6*time.Second)
	}
	return faults
}

// undecided takes the power from all servers, with everything that is not synced, while syncs are
// slow. Most transactions are then between two syncs, and only the state on the disks may have been
// promised. Some clients are away until long after the servers are back. Other clients must decide
// the outcome of their transactions by the state on the disks.
func undecided(d *Dice, at time.Duration) (faults []Fault) {
	takes := d.Between(100*time.Millisecond, 400*time.Millisecond)
	if d.Hasty {
		takes /= 3 // with slower syncs no leader would last
	}
	for i := range d.Servers {
		faults = append(faults, fault(at, 3*time.Second, slowDisk{Target(fmt.Sprint(i)), takes}))
	}
	cut := fault(at+d.Between(time.Second, 2*time.Second), d.Between(200*time.Millisecond,
		3*time.Second), powerCut{0, 0})
	gone := clientsAway.at(d, cut.At)
	// The clients return after an election and after the time until a silent client is believed
	// dead.
	gone.For = cut.For + d.Between(8*time.Second, 12*time.Second)
	return append(faults, cut, gone)
}

// unfinished ends all servers that have a replica of a partition, or nearly all, while transactions
// that are not over have written to the partition. Then no server has the promised state in memory,
// and the next leader reads it from its disk. Clients have their answers, or retry.
func unfinished(d *Dice, at time.Duration) (faults []Fault) {
	takes := time.Duration(0)
	if d.IntN(2) == 0 {
		takes = d.Between(10*time.Millisecond, 150*time.Millisecond)
		if d.Hasty {
			takes /= 3
		}
		for i := range d.Servers {
			faults = append(faults, fault(at, 2*time.Second, slowDisk{Target(fmt.Sprint(i)),
				takes}))
		}
	}
	ends := lockedCrashes.at(d, at+d.Between(0, 500*time.Millisecond))
	if how := ends.Effect.(lockedCrash); takes > 0 {
		how.Delay = d.Between(time.Millisecond, takes)
		ends.Effect = how
	}
	faults = append(faults, ends)
	if d.IntN(3) == 0 {
		gone := clientsAway.at(d, ends.At+d.Between(0, 300*time.Millisecond))
		gone.For = ends.For + d.Between(4*time.Second, 10*time.Second)
		faults = append(faults, gone)
	}
	return faults
}

// straggler is a server that is away for so long that it needs snapshots. The server loses its
// power when it has just received the snapshots. Then a leader loses its power.
func straggler(d *Dice, at time.Duration) []Fault {
	victim, away := d.Number(), d.Between(10*time.Second, 40*time.Second)
	var faults []Fault
	switch d.IntN(3) {
	case 0:
		faults = append(faults, fault(at, away, crash{victim, d.Of(0, 100)}))
	case 1:
		faults = append(faults, fault(at, away, isolation{victim, d.Mode()}))
	default:
		faults = append(faults, fault(at, away, pause{victim}))
	}
	back := at + away + d.Between(50*time.Millisecond, 3*time.Second)
	if d.IntN(3) > 0 {
		faults = append(faults, fault(back, d.Between(20*time.Millisecond, time.Second),
			crash{victim, d.Of(0, 0, 50)}))
		back += time.Second
	}
	if d.IntN(2) == 0 {
		faults = append(faults, fault(back+d.Between(0, 3*time.Second), d.Between(time.Second,
			8*time.Second), crash{d.Leader(), 0}))
	}
	return faults
}

// deposed is a leader that is cut off from the other servers and from some clients. In some draws
// the leader is paused too, its clock is set back, or its clock is ahead of the other clocks.
func deposed(d *Dice, at time.Duration) []Fault {
	apart := leadersApart.at(d, at)
	apart.For = d.Between(2*time.Second, 6*time.Second)
	leader := apart.Effect.(leaderApart).Server
	faults := []Fault{apart}
	how := d.IntN(4)
	if d.Hasty && d.IntN(4) > 0 {
		how = 3
	}
	switch how {
	case 0:
		faults = append(faults, fault(at-200*time.Millisecond, d.Between(time.Second,
			4*time.Second), pause{leader}))
	case 1:
		faults = append(faults, fault(at-time.Second, 0, clockSet{leader, maxClock}),
			fault(at+d.Between(0, time.Second), 0, clockSet{leader, -maxClock}))
	case 3:
		// The timestamps that the leader serves last lie far ahead of its successor's clock.
		for i := range d.Servers {
			faults = append(faults, fault(at-time.Second, 0, clockSet{Target(fmt.Sprint(i)),
				-maxClock}))
		}
		faults = append(faults, fault(at-500*time.Millisecond, 0, clockSet{leader, maxClock}))
	}
	return faults
}

// lostEpoch is a leader that is cut off from the other servers but from no client. While the leader
// has its lease, it grants volatile locks, and returns pending values that will never be committed.
// The leader stays cut off until another replica leads. Clients that have read such values then go
// to the new leader.
func lostEpoch(d *Dice, at time.Duration) []Fault {
	leader := Target(fmt.Sprintf("leader.%d", d.IntN(epochPartitions)))
	return []Fault{fault(at, d.Between(3*time.Second, 6*time.Second), leaderApart{Server: leader,
		Mode: d.Mode()})}
}

// wrongClocks sets a clock beyond the bound, in most draws while leaderships change.
func wrongClocks(d *Dice, at time.Duration) []Fault {
	wrong := clocksWrong.at(d, at+d.Between(0, time.Second))
	wrong.For = d.Between(500*time.Millisecond, 15*time.Second)
	faults := clocksApart(d, at, &wrong)
	apart := leadersApart.at(d, at)
	cutOff := apart.Effect.(leaderApart)
	switch d.IntN(3) {
	case 0:
		cutOff.Server = wrong.Effect.(clockWrong).Server
		apart.Effect = cutOff
		faults = append(faults, apart)
	case 1:
		faults = append(faults, turnover(d, at)...)
	}
	return faults
}

// clocksApart sets the other clocks off too, in a third of the cases with three servers. Servers
// compare their clocks with each other. So the difference between the wrong clock and one of the
// other clocks may be within the bound, or the wrong clock may be set by less than the bound.
// clocksApart draws nothing, so that the other faults of a seed stay the same.
func clocksApart(d *Dice, at time.Duration, wrong *Fault) (faults []Fault) {
	effect := wrong.Effect.(clockWrong)
	drawn := effect.Offset.Abs().Milliseconds()
	if d.Servers == 3 && drawn%3 == 0 {
		to := effect.Offset / effect.Offset.Abs()
		effect.Offset = to * (300*time.Millisecond + time.Duration(drawn%70)*time.Millisecond)
		wrong.Effect = effect
		for i := range d.Servers {
			off := to * maxClock
			if Target(fmt.Sprint(i)) != effect.Server && wrong.For.Milliseconds()>>i&1 == 1 {
				off = -to * time.Duration(drawn%int64(maxClock/time.Millisecond)) * time.Millisecond
			}
			faults = append(faults, fault(at-time.Second, 0, clockSet{Target(fmt.Sprint(i)), off}))
		}
	}
	return append(faults, *wrong)
}

// replacement is a server that comes back with an empty disk. Then some of the other servers, which
// still have the data, are cut off one after the other.
func replacement(d *Dice, at time.Duration) []Fault {
	w := wipes.at(d, at)
	w.For = d.Between(20*time.Millisecond, 4*time.Second)
	back := w.At + w.For
	faults := []Fault{w}
	for _, i := range d.Perm(d.Servers) {
		if victim := Target(fmt.Sprint(i)); victim != w.Effect.(wipe).Server && d.IntN(2) == 0 {
			back += d.Between(time.Second, 4*time.Second)
			faults = append(faults, fault(back, d.Between(time.Second, 5*time.Second),
				isolation{victim, d.Mode()}))
		}
	}
	return slices.Clip(faults)
}

// between cuts the links between two servers, both ways.
type between struct {
	A, B Target
	Mode string `one:"broken silent"`
}

var _ = register("between", 0, 10*time.Second,
	func(d *Dice) between { return between{d.Server(), d.Server(), d.Mode()} })

// Begin implements Effect.
func (f between) Begin(w *World) (string, func() string) {
	a, ok := w.find(f.A)
	b, there := w.find(f.B)
	if !ok || !there || a == b {
		return absent(f.A + " and " + f.B)
	}
	w.count("cuts")
	w.Cluster.Network().CutBoth(w.Cluster.Host(a), w.Cluster.Host(b), mode(f.Mode))
	return fmt.Sprintf("servers %d and %d cut off from each other", a, b), func() string {
		w.Cluster.Heal(a, b)
		return fmt.Sprintf("servers %d and %d reach each other", a, b)
	}
}
