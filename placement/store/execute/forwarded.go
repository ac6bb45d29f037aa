package execute

// maxOrigins bounds the processes whose commands a leader remembers. Only members hand over
// commands, so the bound is reached only if members restart very often in one term.
const maxOrigins = 1024

// forwarded are the commands of other members that this leader has proposed in its term. They
// prevent a second proposal when a member asks again. Executor.mu guards it.
type forwarded struct {
	term    uint64
	origins map[uint64]*originCommands
	uses    uint64
}

// originCommands are the commands of one process.
type originCommands struct {
	// settled is the number up to which the process knows the outcomes of its commands, or does not
	// need them. It will not ask for these commands again.
	settled uint64
	// proposed maps the number of a command to its pending; nil while the command is about to be
	// proposed.
	proposed map[uint64]*pending
	// used is when the process last sent a command, as a value of forwarded.uses.
	used uint64
}

func (f *forwarded) begin(term uint64) {
	f.term, f.origins = term, map[uint64]*originCommands{}
}

// propose records that a command is about to be proposed. It returns false if the command was
// proposed before, or is settled.
func (f *forwarded) propose(id ID, settled uint64) (first bool, before *pending) {
	o := f.origins[id.Origin]
	if o == nil {
		f.makeRoom()
		o = &originCommands{proposed: map[uint64]*pending{}}
		f.origins[id.Origin] = o
	}
	f.uses++
	o.used = f.uses
	if settled > o.settled {
		o.settled = settled
		for request := range o.proposed {
			if request <= settled {
				delete(o.proposed, request)
			}
		}
	}
	before, again := o.proposed[id.Request]
	if id.Request <= o.settled || again {
		return false, before
	}
	o.proposed[id.Request] = nil
	return true, nil
}

// registered records the pending of a command.
func (f *forwarded) registered(id ID, p *pending) {
	if o := f.origins[id.Origin]; o != nil {
		if _, ok := o.proposed[id.Request]; ok {
			o.proposed[id.Request] = p
		}
	}
}

// makeRoom removes the process that has sent no command for the longest time.
func (f *forwarded) makeRoom() {
	if len(f.origins) < maxOrigins {
		return
	}
	var oldest uint64
	for id, o := range f.origins {
		if oldest == 0 || o.used < f.origins[oldest].used {
			oldest = id
		}
	}
	delete(f.origins, oldest)
}

// notProposed undoes propose.
func (f *forwarded) notProposed(id ID) {
	if o := f.origins[id.Origin]; o != nil {
		delete(o.proposed, id.Request)
	}
}
