// What the server sends; the Go types of package console have the meanings.

export interface Rates {
  reads: number;
  writes: number;
  readBytes: number;
  writtenBytes: number;
  load: number;
}

export interface Node {
  id: number;
  address: string;
  region?: string;
  zone?: string;
  version: string;
  alive: boolean;
  status: string;
  silentSeconds?: number;
  started?: number;
  tags?: string[];
  replicas: number;
  leaders: number;
  diskUsed: number;
  diskFree: number;
  diskFull?: boolean;
  diskSlow?: boolean;
  syncMicros?: number;
  clockWrong?: boolean;
  failed?: number;
  notReady?: string[];
  rates: Rates;
}

export interface Member {
  id: number;
  address: string;
  role: string;
  leader: boolean;
  answers: boolean;
  leadsCoordination: boolean;
  behind: number;
  snapshot?: boolean;
  syncMicros?: number;
}

export interface Problem {
  kind: string;
  text: string;
  bad: boolean;
}

export interface DemoServer {
  server: number;
  node?: number;
  address: string;
  state: "running" | "stopped" | "isolated";
  core: boolean;
}

export interface DemoLoad {
  running: boolean;
  done: number;
  failed: number;
  slowestMillis: number;
}

export interface Cluster {
  cluster: string;
  ready: boolean;
  waitingFor?: string;
  coreLeader?: string;
  unknown?: string;
  problems: Problem[];
  paused: boolean;
  nodes: Node[];
  core: Member[];
  keyspaces: number;
  partitions: number;
  operators: number;
  rates: Rates;
  release: { release: string; target?: string; obstacles?: string[] };
  servers?: DemoServer[];
  load?: DemoLoad;
}

export interface Keyspace {
  name: string;
  partitioning: string;
  partitions: number;
  replicas: number;
  state: string;
  waitingFor?: string;
  placement?: string;
  leaders?: string;
  gcSeconds: number;
  ttlSeconds?: number;
  commitWait?: boolean;
  keys: number;
  bytes: number;
  rates: Rates;
}

export interface Partition {
  id: number;
  keyspace: string;
  span: string;
  leader: number;
  replicas: { node: number; learner?: boolean }[] | null;
  keys: number;
  bytes: number;
  rates: Rates;
  merging?: boolean;
}

export interface PartitionPage {
  total: number;
  from: number;
  rows: Partition[];
}

export interface Event {
  number: number;
  at: number;
  kind: string;
  partition?: number;
  keyspace?: string;
  from?: number;
  to?: number;
  leader?: number;
  reason: string;
  outcome: string;
  millis: number;
  bytes?: number;
  rejected?: string;
  before?: string;
  after?: string;
}

export interface Operator {
  id: number;
  partition: number;
  keyspace: string;
  kind: string;
  from?: number;
  to?: number;
  leader?: number;
  bytes?: number;
  reason: string;
  step: string;
  waitsFor?: string;
  seconds: number;
  cancelled?: boolean;
}

export interface Placement {
  paused: boolean;
  settings: boolean;
  mostOperators?: number;
  repairSeconds?: number;
  snapshotsOfNode?: number;
  operators: Operator[];
  operatorsNotShown?: number;
}

export interface Waiter {
  transaction?: string;
  key: string;
  millis: number;
  write: boolean;
}

export interface Transaction {
  id: string;
  state?: string;
  ageMillis: number;
  idleMillis?: number;
  keyspace: string;
  partition: number;
  locks: number;
  spans?: number;
  partitions: number;
  key: string;
  oldestMillis: number;
  client?: string;
  waiters?: Waiter[];
  waitersNotShown?: number;
}

export interface Transactions {
  rows: Transaction[];
  more?: boolean;
  unanswered?: string;
}

export interface Queue {
  name: string;
  kind: string;
  holder: string;
  revision: number;
  holders: number;
  waiting: number;
}

export interface Coordination {
  members: Member[];
  revision: number;
  bytes: number;
  keys: number;
  leases: number;
  watches: number;
  version?: string;
  leaseList: { id: string; ttl: number; granted: number; keys: number; first?: string }[];
  locks: Queue[];
  elections: Queue[];
  more?: boolean;
  unknown?: string;
}

export interface Backup {
  id: string;
  state: string;
  restore?: boolean;
  target: string;
  parent?: string;
  schedule?: string;
  began: number;
  ended?: number;
  step?: string;
  done: number;
  units: number;
  records: number;
  bytes: number;
  stored: number;
  failures?: number;
  error?: string;
  encrypted?: boolean;
}

export interface Schedule {
  name: string;
  target: string;
  paused?: boolean;
  full: string;
  incremental?: string;
  log?: string;
  retention?: string;
  last?: string;
  lastAt?: number;
  logAt?: number;
  running?: string;
  error?: string;
  logError?: string;
}

export interface Backups {
  backups: Backup[];
  schedules: Schedule[];
}

export interface History {
  begin: number;
  step: number;
  reads: number[];
  writes: number[];
  bytes: number[];
  readP50: number[];
  readP99: number[];
  writeP50: number[];
  writeP99: number[];
  silent?: number[];
}

export interface HeatRow {
  keyspace: string;
  label: string;
  first: number;
  last: number;
  count: number;
  now: number;
}

export interface Heat {
  begin: number;
  step: number;
  columns: number;
  rows: HeatRow[];
  cells: string;
  max: number;
  partitions: number;
  silent?: number[];
  leftOut?: number;
}

export interface SlowPart {
  name: string;
  micros: number;
}

export interface Slow {
  rows: {
    node: number;
    began: number;
    micros: number;
    parts: SlowPart[];
    kind: string;
    keyspace: string;
    partition?: number;
    key: string;
    client?: string;
    user?: string;
    error?: string;
    holder?: string;
    trace?: string;
  }[];
  nodes: { node: number; thresholdMicros: number; count: number }[];
  unanswered?: string;
}
