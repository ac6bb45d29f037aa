package sim

import (
	"fmt"
	"slices"
	"time"
)

// theme is a kind of storm: faults that happen at about the same time, and have something to do
// with each other. What breaks a database is seldom one fault.
type theme struct {
	name   string
	weight int
	draw   func(d *Dice, at time.Duration) []Fault
}

// themesFor is the themes that a cluster can have.
func themesFor(d *Dice) []theme {
	themes := []theme{
		{"anything", 40, anything}, {"turnover", 25, turnover}, {"usurpation", 20, usurpation},
		{"blackout", 8, blackout},
		{"straggler", 8, straggler}, {"deposed", 12, deposed}, {"second thoughts", 12,
			secondThoughts},
	}
	if d.Epochs {
		// With little else beside: a value pending that is lost is to be missed, and not to be lost
		// in the noise.
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

// anything is up to five faults of any kind within some seconds.
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

// fault makes one with parameters that are not drawn.
func fault(at, lasts time.Duration, e Effect) Fault {
	return Fault{At: at.Round(time.Millisecond), For: lasts.Round(time.Millisecond), Effect: e}
}

// turnover is leaderships that change hands many times in a row between servers whose clocks differ
// as much as they may, while entries take their time to be applied. What one leader served binds
// the next.
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

// migration is nodes that are emptied and replicas that move, while servers fail that have to do
// with it: the core's leader, those that lead, and those that receive.
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

// clocks is clocks that are as far apart as they may be, and nothing else.
func clocks(d *Dice, at time.Duration) (faults []Fault) {
	for i := range d.Servers {
		faults = append(faults, fault(at, 0, clockSet{Target(fmt.Sprint(i)),
			[]time.Duration{-maxClock, maxClock}[d.IntN(2)]}))
	}
	return faults
}

// usurpation is a follower that does not hear the leader and campaigns, just when another follower
// has restarted, and forgotten what it promised the leader; what hears of it too late, if the
// promise is broken, is the leader, and the clients that reach no other server. The first follower
// can win only if nothing was written meanwhile: so all of it is short.
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

// secondThoughts is a follower that a leader hands over to, and that the other follower does not
// hear; the former leader votes for it and loses its power at that moment. The new leader is cut
// off, so that the other follower campaigns too, in the same term, and asks a replica that has
// voted already.
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

// blackout is a majority, or all, that lose their power one after the other, more than once.
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

// undecided is all servers that lose their power, and what is not synced, while their disks take
// long: most transactions are then between two syncs, and what has been promised is only what is on
// the disks. Some clients are away until long after the servers are back: what these know the
// outcome of, others decide, by what is left of it.
func undecided(d *Dice, at time.Duration) (faults []Fault) {
	takes := d.Between(100*time.Millisecond, 400*time.Millisecond)
	if d.Hasty {
		takes /= 3 // or no leader would last
	}
	for i := range d.Servers {
		faults = append(faults, fault(at, 3*time.Second, slowDisk{Target(fmt.Sprint(i)), takes}))
	}
	cut := fault(at+d.Between(time.Second, 2*time.Second), d.Between(200*time.Millisecond,
		3*time.Second), powerCut{0, 0})
	gone := clientsAway.at(d, cut.At)
	// An election, and what a client may be silent for, and some.
	gone.For = cut.For + d.Between(8*time.Second, 12*time.Second)
	return append(faults, cut, gone)
}

// unfinished is all servers that have a replica of a partition, or nearly all, which end while
// transactions have written to it and are not over: what was promised is then in no server's
// memory, and the next leader has it from the disks. Clients have their answers, or ask on.
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

// straggler is a server that is away for so long that it needs snapshots, and loses its power when
// it has just got them; then another does.
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

// deposed is a leader that is cut off from the others and not from all clients, or that stands
// still, with a clock that is set back.
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
		// What it has served until the end lies far ahead of its successor's clock.
		for i := range d.Servers {
			faults = append(faults, fault(at-time.Second, 0, clockSet{Target(fmt.Sprint(i)),
				-maxClock}))
		}
		faults = append(faults, fault(at-500*time.Millisecond, 0, clockSet{leader, maxClock}))
	}
	return faults
}

// lostEpoch is a leader that is cut off from the other servers and from no client. For as long as
// it has its lease it gives out volatile locks, and with them values that are pending and will
// never be committed; and it stays away until another one leads, to which the clients go that have
// read them.
func lostEpoch(d *Dice, at time.Duration) []Fault {
	leader := Target(fmt.Sprintf("leader.%d", d.IntN(epochPartitions)))
	return []Fault{fault(at, d.Between(3*time.Second, 6*time.Second), leaderApart{Server: leader,
		Mode: d.Mode()})}
}

// wrongClocks is clocks beyond the bound while leaderships change.
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

// clocksApart has the other clocks be off too, in a third of the cases with three servers, which
// all compare their clocks: so that the one beyond the bound may be within it from one of the
// others and not from the other one, or have been set by less than the bound. It draws nothing, so
// that the other faults of a seed stay what they were.
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

// replacement is a server that comes back with an empty disk, and then one after the other crash of
// those that still know.
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
