package main

import "strings"

// foreignCommands maps words of other tools to commands of this one, for each parent command.
var foreignCommands = map[string]map[string]string{
	"tidemark": {
		"set": `"put"`, "insert": `"put"`, "write": `"put"`, "update": `"put"`, "upsert": `"put"`,
		"setnx": `"cas" with --expect-absent`, "mset": `"load"`,
		"read": `"get"`, "mget": `"get", which takes several keys`, "show": `"get"`, "cat": `"get"`,
		"exists": `"get", whose exit code is 3 if a key has no value`,
		"rm":     `"delete"`, "del": `"delete"`, "remove": `"delete"`, "unset": `"delete"`,
		"flushdb": `"delete" with --all`, "flushall": `"keyspace drop"`, "clear": `"delete" with --all`,
		"ls": `"scan" (keys of a keyspace) or "keyspace list"`, "list": `"scan" or "keyspace list"`,
		"keys": `"scan" with --keys-only`, "range": `"scan"`, "query": `"scan"`, "select": `"scan"`,
		"incr": `"increment"`, "incrby": `"increment" with --by`, "decr": `"increment" with --by -1`,
		"watch": `"changes" (a keyspace) or "coord watch"`, "subscribe": `"changes"`,
		"tail": `"changes"`, "cdc": `"changes"`, "changefeed": `"changes"`, "feed": `"changes"`,
		"export":   `"dump", "coord export" or "backup create"`,
		"import":   `"load", "coord import" or "restore"`,
		"snapshot": `"dump" (a keyspace) or "coord export"`,
		"begin":    `"txn"`, "transaction": `"txn"`, "sql": `"txn"`, "shell": `"txn"`, "multi": `"txn"`,
		"create": `"keyspace create"`, "drop": `"keyspace drop"`, "describe": `"keyspace describe"`,
		"alter": `"keyspace alter"`, "table": `"keyspace"`, "tables": `"keyspace list"`,
		"database": `"keyspace"`, "namespace": `"keyspace"`, "use": `"txn"`,
		"regions": `"partitions"`, "ranges": `"partitions"`, "shards": `"partitions"`,
		"tablets": `"partitions"`,
		"info":    `"status"`, "ping": `"health"`, "endpoint": `"status"`, "check": `"status"`,
		"cluster": `"status", "nodes" or "core"`, "member": `"core"`, "members": `"core list"`,
		"history": `"events"`, "log": `"events"`, "logs": `"events"`, "audit": `"events"`,
		"tasks": `"operators"`, "jobs": `"operators"`, "explain": `"why"`,
		"drain": `"node drain"`, "decommission": `"node decommission"`, "rebalance": `"placement"`,
		"user": `"auth user"`, "role": `"auth role"`, "login": `"auth login"`,
		"grant":  `"auth role grant"`,
		"server": `"start"`, "run": `"start"`, "serve": `"start"`, "dev": `"demo"`,
		"compact": `"coord compact"`, "compaction": `"coord compact"`,
		"benchmark": `"bench"`, "ycsb": `"bench ycsb"`, "metrics": `"start" with --http`,
		"leader": `"elect"`, "election": `"elect"`, "cron": `"timer"`, "semaphore": `"lock"`,
		"config": `"placement show" or "keyspace describe"`,
		"wc":     `"count"`, "size": `"count" or "keyspace describe"`,
	},
	"tidemark keyspace": {
		"add": `"create"`, "new": `"create"`, "ls": `"list"`, "rm": `"drop"`, "remove": `"drop"`,
		"delete": `"drop"`, "del": `"drop"`, "show": `"describe"`, "get": `"describe"`,
		"info": `"describe"`, "set": `"alter"`, "update": `"alter"`, "edit": `"alter"`,
		"truncate": `"tidemark delete" with --all`,
	},
	"tidemark node": {
		"ls": `"tidemark nodes"`, "list": `"tidemark nodes"`, "show": `"tidemark why"`,
		"remove": `"decommission"`, "rm": `"decommission"`, "delete": `"decommission"`,
		"cordon": `"drain"`, "uncordon": `"undo"`, "undrain": `"undo"`,
	},
	"tidemark core": {
		"ls": `"list"`, "members": `"list"`, "rm": `"remove"`, "delete": `"remove"`, "join": `"add"`,
		"status": `"list"`,
	},
	"tidemark coord": {
		"set": `"put"`, "ls": `"get" with --prefix`, "list": `"get" with --prefix`, "rm": `"del"`,
		"delete": `"del"`, "remove": `"del"`, "backup": `"export"`, "snapshot": `"export"`,
		"save": `"export"`, "restore": `"import"`, "lock": `"tidemark lock"`,
		"elect": `"tidemark elect"`,
		"lease": `"tidemark lease"`, "user": `"tidemark auth user"`, "role": `"tidemark auth role"`,
		"member": `"tidemark core"`, "compaction": `"compact"`,
	},
	"tidemark lease": {
		"create": `"grant"`, "ls": `"list"`, "rm": `"revoke"`, "delete": `"revoke"`, "show": `"ttl"`,
		"keepalive": `"keep-alive"`,
	},
	"tidemark auth user": {
		"create": `"add"`, "new": `"add"`, "ls": `"list"`, "rm": `"delete"`, "remove": `"delete"`,
		"get": `"show"`, "passwd": `"password"`, "grant-role": `"grant"`, "revoke-role": `"revoke"`,
	},
	"tidemark auth role": {
		"create": `"add"`, "new": `"add"`, "ls": `"list"`, "rm": `"delete"`, "remove": `"delete"`,
		"grant-permission": `"grant"`, "revoke-permission": `"revoke"`,
	},
	"tidemark txn": {"ls": `"list"`, "kill": `"abort"`, "rollback": `"abort"`, "show": `"list"`},
	"tidemark placement": {
		"status": `"show"`, "set": `"limits"`, "stop": `"pause"`, "start": `"resume"`,
	},
	"tidemark consumers": {"rm": `"delete"`, "remove": `"delete"`},
	"tidemark cert":      {"create": `"server" or "client"`, "init": `"ca"`},
}

// foreignFlags maps flags of other tools to flags of this program. They are suggested if the
// command has the flag.
var foreignFlags = map[string]string{
	"host": "endpoints", "hostname": "endpoints", "server": "endpoints", "address": "endpoints",
	"addr": "endpoints", "cluster": "endpoints", "url": "endpoints", "peers": "endpoints",
	"write-out": "output", "out": "output", "json": "output", "format": "output",
	"password": "password-file", "username": "user", "cacert": "tls-ca", "ca-file": "tls-ca",
	"start": "from", "begin": "from", "start-key": "from", "end": "to", "end-key": "to", "stop": "to",
	"count": "limit", "max": "limit", "top": "limit", "force": "yes", "confirm": "yes",
	"expire": "ttl", "expires": "ttl", "ex": "ttl", "px": "ttl", "lifetime": "ttl",
	"nx": "expect-absent", "if-not-exists": "expect-absent", "if-absent": "expect-absent",
	"old": "expect", "prev-value": "expect", "file": "value-file", "as-of": "at", "timestamp": "at",
	"command-timeout": "timeout", "dial-timeout": "timeout", "deadline": "timeout",
	"shards": "partitions", "replication-factor": "replicas", "no-color": "color",
	"data-dir": "dir", "store": "dir", "join": "core", "initial-cluster": "core", "desc": "reverse",
	"no-headers": "headers", "noheaders": "headers",
}

// foreignCommand returns the command that corresponds to a word of another tool, below a parent
// command; "" if none is known.
func foreignCommand(path, word string) string {
	return foreignCommands[path][strings.ToLower(word)]
}

// foreignFlag returns the flag among names that a user meant by a word. The word is a flag of
// another tool, or the end of exactly one flag, as absent is the end of expect-absent. It returns
// "" if there is no such flag.
func foreignFlag(word string, names []string) string {
	found := ""
	for _, name := range names {
		switch {
		case name == foreignFlags[word]:
			return name
		case !strings.HasSuffix(name, "-"+word):
		case found != "":
			return ""
		default:
			found = name
		}
	}
	return found
}
