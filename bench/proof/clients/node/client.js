// What the package etcd3 offers, against the servers of ENDPOINTS.
'use strict';

const readline = require('readline');
const { Etcd3 } = require('etcd3');

const client = new Etcd3({ hosts: process.env.ENDPOINTS.split(',') });

function equal(what, got, want) {
  if (JSON.stringify(got) !== JSON.stringify(want)) {
    throw new Error(`${what}: got ${JSON.stringify(got)}, want ${JSON.stringify(want)}`);
  }
}

// soon waits for something, for a time.
function soon(what, promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} never came`)), 30000);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

// asked asks again while there is no leader: a call may fail then.
async function asked(what, call) {
  const until = Date.now() + 30000;
  for (;;) {
    try {
      return await call();
    } catch (error) {
      if (Date.now() > until) {
        throw new Error(`${what}: ${error}`);
      }
      await new Promise((again) => setTimeout(again, 100));
    }
  }
}

async function use(at) {
  await client.put(`${at}/a`).value('1');
  equal('get', await client.get(`${at}/a`).string(), '1');
  const done = await client.if(`${at}/a`, 'Value', '==', '1')
    .then(client.put(`${at}/b`).value('2'), client.get(`${at}/b`))
    .else(client.delete().key(`${at}/a`))
    .commit();
  equal('transaction', done.succeeded, true);
  equal('prefix', await client.getAll().prefix(`${at}/`).strings(), {
    [`${at}/a`]: '1',
    [`${at}/b`]: '2',
  });
  equal('delete', (await client.delete().key(`${at}/a`)).deleted, '1');
  const lease = client.lease(60);
  await lease.put(`${at}/leased`).value('x');
  await lease.keepaliveOnce();
  await lease.revoke();
  equal('get after the lease', await client.get(`${at}/leased`).string(), null);
  const lock = client.lock(`${at}/lock`);
  await lock.acquire();
  let refused = false;
  await client.lock(`${at}/lock`).acquire().catch(() => { refused = true; });
  equal('lock of what is locked', refused, true);
  await lock.release();
  await client.stm().transact(async (tx) => {
    await tx.put(`${at}/counter`).value(1 + ((await tx.get(`${at}/counter`).number()) || 0));
  });
  equal('software transaction', await client.get(`${at}/counter`).number(), 1);
}

async function main() {
  await use('before');
  const watcher = await client.watch().key('watched').create();
  const events = [];
  let wake = () => {};
  watcher.on('put', (kv) => { events.push(kv.value.toString()); wake(); });
  const event = (value) => soon(`the event ${value}`, new Promise((resolve) => {
    wake = () => { if (events.includes(value)) { resolve(); } };
    wake();
  }));
  await client.put('watched').value('one');
  await event('one');
  const election = client.election('vote', 60);
  const campaign = election.campaign('first');
  await soon('the election', new Promise((resolve, reject) => {
    campaign.on('elected', resolve);
    campaign.on('error', reject);
  }));
  equal('leader', await election.leader(), 'first');
  await client.put('kept').value('yes');
  console.log('KILL');
  const input = readline.createInterface({ input: process.stdin });
  await new Promise((resolve) => { input.once('line', resolve); });
  input.close();
  await asked('put after a kill', () => client.put('watched').value('two'));
  await event('two');
  // An attempt that failed may have left keys behind.
  let attempts = 0;
  await asked('use after a kill', () => use(`after-${attempts++}`));
  equal('what was put before', await client.get('kept').string(), 'yes');
  equal('the leader of before', await election.leader(), 'first');
  await campaign.resign();
  await watcher.cancel();
  client.close();
}

main().then(() => process.exit(0), (error) => {
  console.error(error);
  process.exit(1);
});
