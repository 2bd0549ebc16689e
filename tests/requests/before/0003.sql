-- A state folder's database as the release with schema 0003 left it when it was killed: a cluster `done`
-- with a job that has ended and one that runs, `half` in its setup, `early` just launched.
BEGIN TRANSACTION;
CREATE TABLE accounts (
	seq INTEGER NOT NULL, 
	id VARCHAR(40) NOT NULL, 
	name VARCHAR(64) NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	version INTEGER NOT NULL, 
	enabled BOOLEAN NOT NULL, 
	limits JSON, 
	caps JSON, 
	created_us BIGINT NOT NULL, 
	CONSTRAINT pk_accounts PRIMARY KEY (seq), 
	CONSTRAINT uq_accounts_id UNIQUE (id), 
	CONSTRAINT uq_accounts_name UNIQUE (name)
);
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0003');
CREATE TABLE api_keys (
	seq INTEGER NOT NULL, 
	id VARCHAR(40) NOT NULL, 
	account_id VARCHAR(40) NOT NULL, 
	name VARCHAR(64) NOT NULL, 
	sha256 VARCHAR(64) NOT NULL, 
	hint VARCHAR(16) NOT NULL, 
	scopes JSON NOT NULL, 
	caps JSON, 
	created_us BIGINT NOT NULL, 
	expires_us BIGINT, 
	revoked_us BIGINT, 
	CONSTRAINT pk_api_keys PRIMARY KEY (seq), 
	CONSTRAINT uq_api_keys_id UNIQUE (id), 
	CONSTRAINT uq_api_keys_sha256 UNIQUE (sha256)
);
CREATE TABLE artifacts (
	job_id VARCHAR(40) NOT NULL, 
	path VARCHAR(1024) NOT NULL, 
	size_bytes BIGINT NOT NULL, 
	sha256 VARCHAR(64) NOT NULL, 
	allowed_us BIGINT NOT NULL, 
	stored_us BIGINT, 
	CONSTRAINT pk_artifacts PRIMARY KEY (job_id, path)
)
 WITHOUT ROWID

;
CREATE TABLE blobs (
	sha256 VARCHAR(64) NOT NULL, 
	size_bytes BIGINT NOT NULL, 
	content BLOB, 
	created_us BIGINT NOT NULL, 
	CONSTRAINT pk_blobs PRIMARY KEY (sha256)
);
INSERT INTO "blobs" VALUES('38f9fda89be5a1e9ad9c7f0ed50cbc9c2099bbe92ffc6fd60a3832f9811b269c',613,X'736B792D737465700A7B2273746570223A22736372697074222C22636C7573746572223A22636C755F30316D386E777970357136367365793771317A6D34626E787371222C226A6F62223A312C226B696E64223A2272756E222C2274657874223A226563686F20646F6E65222C22656E76223A7B22534B5950494C4F545F4E4F44455F52414E4B223A2230222C22534B5950494C4F545F4E4F44455F495053223A223132372E302E302E31222C22534B5950494C4F545F4E554D5F4E4F444553223A2231222C22534B5950494C4F545F4E554D5F475055535F5045525F4E4F4445223A2230222C22534B5950494C4F545F5441534B5F4944223A22736B792D313739363033313333383633333138375F646F6E655F31222C22534B5950494C4F545F434C55535445525F494E464F223A227B5C22636C75737465725F6E616D655C223A5C22646F6E655C222C5C22636C6F75645C223A5C225C222C5C22726567696F6E5C223A5C225C222C5C227A6F6E655C223A5C225C227D222C22534B595F4E4F44455F52414E4B223A2230222C22534B595F4E4F44455F495053223A223132372E302E302E31222C22534B595F4E554D5F4E4F444553223A2231222C22534B595F4E554D5F475055535F5045525F4E4F4445223A2230222C22534B595F5441534B5F4944223A22736B792D313739363033313333383633333138375F646F6E655F31222C22534B595F434C55535445525F494E464F223A227B5C22636C75737465725F6E616D655C223A5C22646F6E655C222C5C22636C6F75645C223A5C225C222C5C22726567696F6E5C223A5C225C222C5C227A6F6E655C223A5C225C227D227D7D',1796031343923716);
INSERT INTO "blobs" VALUES('44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a',2,X'7B7D',1796031343923716);
INSERT INTO "blobs" VALUES('e81bc160c0843ee56f31f12997bb3aff50528d596002d4866676cb8a1b19195a',15,X'7B22657869745F636F6465223A307D',1796031344162879);
INSERT INTO "blobs" VALUES('dd3f0df5a84e7a86497ce05e7e734948ca200b4237abad8660f67784c3ddcc3c',625,X'736B792D737465700A7B2273746570223A22736372697074222C22636C7573746572223A22636C755F30316D386E777970357136367365793771317A6D34626E787371222C226A6F62223A322C226B696E64223A2272756E222C2274657874223A226563686F20626567756E3B20736C65657020363030222C22656E76223A7B22534B5950494C4F545F4E4F44455F52414E4B223A2230222C22534B5950494C4F545F4E4F44455F495053223A223132372E302E302E31222C22534B5950494C4F545F4E554D5F4E4F444553223A2231222C22534B5950494C4F545F4E554D5F475055535F5045525F4E4F4445223A2230222C22534B5950494C4F545F5441534B5F4944223A22736B792D313739363033313334343831393531365F646F6E655F32222C22534B5950494C4F545F434C55535445525F494E464F223A227B5C22636C75737465725F6E616D655C223A5C22646F6E655C222C5C22636C6F75645C223A5C225C222C5C22726567696F6E5C223A5C225C222C5C227A6F6E655C223A5C225C227D222C22534B595F4E4F44455F52414E4B223A2230222C22534B595F4E4F44455F495053223A223132372E302E302E31222C22534B595F4E554D5F4E4F444553223A2231222C22534B595F4E554D5F475055535F5045525F4E4F4445223A2230222C22534B595F5441534B5F4944223A22736B792D313739363033313334343831393531365F646F6E655F32222C22534B595F434C55535445525F494E464F223A227B5C22636C75737465725F6E616D655C223A5C22646F6E655C222C5C22636C6F75645C223A5C225C222C5C22726567696F6E5C223A5C225C222C5C227A6F6E655C223A5C225C227D227D7D',1796031344915979);
INSERT INTO "blobs" VALUES('caed1214da8a7f6ee5e3c0874b56173fe6754854952938c0ef0dc9e460b128c7',615,X'736B792D737465700A7B2273746570223A22736372697074222C22636C7573746572223A22636C755F30316D386E77797762376B70353233317671666439706230366D222C226A6F62223A312C226B696E64223A227365747570222C2274657874223A22736C65657020363030222C22656E76223A7B22534B5950494C4F545F4E4F44455F52414E4B223A2230222C22534B5950494C4F545F4E4F44455F495053223A223132372E302E302E31222C22534B5950494C4F545F4E554D5F4E4F444553223A2231222C22534B5950494C4F545F4E554D5F475055535F5045525F4E4F4445223A2230222C22534B5950494C4F545F5441534B5F4944223A22736B792D313739363033313334343937343339375F68616C665F31222C22534B5950494C4F545F434C55535445525F494E464F223A227B5C22636C75737465725F6E616D655C223A5C2268616C665C222C5C22636C6F75645C223A5C225C222C5C22726567696F6E5C223A5C225C222C5C227A6F6E655C223A5C225C227D222C22534B595F4E4F44455F52414E4B223A2230222C22534B595F4E4F44455F495053223A223132372E302E302E31222C22534B595F4E554D5F4E4F444553223A2231222C22534B595F4E554D5F475055535F5045525F4E4F4445223A2230222C22534B595F5441534B5F4944223A22736B792D313739363033313334343937343339375F68616C665F31222C22534B595F434C55535445525F494E464F223A227B5C22636C75737465725F6E616D655C223A5C2268616C665C222C5C22636C6F75645C223A5C225C222C5C22726567696F6E5C223A5C225C222C5C227A6F6E655C223A5C225C227D227D7D',1796031350478213);
CREATE TABLE cluster_jobs (
	seq INTEGER NOT NULL, 
	id VARCHAR(40) NOT NULL, 
	cluster_id VARCHAR(40) NOT NULL, 
	number INTEGER NOT NULL, 
	name VARCHAR(256), 
	owner VARCHAR(64) NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	version INTEGER NOT NULL, 
	body JSON NOT NULL, 
	num_nodes INTEGER NOT NULL, 
	gpus INTEGER NOT NULL, 
	setup_tasks JSON, 
	run_tasks JSON, 
	exit_codes JSON, 
	error JSON, 
	stop_error JSON, 
	submitted_us BIGINT NOT NULL, 
	started_us BIGINT, 
	stop_us BIGINT, 
	ended_us BIGINT, 
	CONSTRAINT pk_cluster_jobs PRIMARY KEY (seq), 
	CONSTRAINT uq_cluster_jobs_cluster_id_number UNIQUE (cluster_id, number), 
	CONSTRAINT uq_cluster_jobs_id UNIQUE (id)
);
INSERT INTO "cluster_jobs" VALUES(1,'cjb_01m8nwyp6s4cnqv5889eaaj1bg','clu_01m8nwyp5q66sey7q1zm4bnxsq',1,'t','root','SUCCEEDED',4,'{"name":"t","run":"echo done"}',1,0,NULL,'["tsk_01m8nwyvaex0hw7ss82krc27ye"]','[0]',NULL,NULL,1796031338633187,1796031343923716,NULL,1796031344182822);
INSERT INTO "cluster_jobs" VALUES(2,'cjb_01m8nwyw5m7w5xz12phd0766w2','clu_01m8nwyp5q66sey7q1zm4bnxsq',2,NULL,'root','RUNNING',3,'{"run":"echo begun; sleep 600"}',1,0,NULL,'["tsk_01m8nwyw9tn2yhgs6yy2zrmc1f"]',NULL,NULL,NULL,1796031344819516,1796031344915979,NULL,NULL);
INSERT INTO "cluster_jobs" VALUES(3,'cjb_01m8nwywbaxxek4m8jfp1q6b9j','clu_01m8nwywb7kp5231vqfd9pb06m',1,NULL,'root','SETTING_UP',2,'{"setup":"sleep 600","run":"true"}',1,0,'{"setup":["tsk_01m8nwz1pfssrnnezx0pfwebq7"]}',NULL,NULL,NULL,NULL,1796031344974397,NULL,NULL,NULL);
INSERT INTO "cluster_jobs" VALUES(4,'cjb_01m8nwz1y1j6e3e8ahf9nc3dxy','clu_01m8nwz1xsj1wsdhy96wttj05w',1,NULL,'root','INIT',1,'{"run":"echo early"}',1,0,NULL,NULL,NULL,NULL,NULL,1796031350707620,NULL,NULL,NULL);
CREATE TABLE clusters (
	seq INTEGER NOT NULL, 
	id VARCHAR(40) NOT NULL, 
	name VARCHAR(64) NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	version INTEGER NOT NULL, 
	owner VARCHAR(64) NOT NULL, 
	compute_id VARCHAR(40) NOT NULL, 
	num_nodes INTEGER NOT NULL, 
	resources JSON NOT NULL, 
	specs JSON NOT NULL, 
	autostop_minutes INTEGER NOT NULL, 
	autostop_down BOOLEAN NOT NULL, 
	next_job INTEGER NOT NULL, 
	last_use TEXT, 
	last_error JSON, 
	created_us BIGINT NOT NULL, 
	launched_us BIGINT NOT NULL, 
	busy_us BIGINT NOT NULL, 
	up_us BIGINT, 
	removed_us BIGINT, 
	CONSTRAINT pk_clusters PRIMARY KEY (seq), 
	CONSTRAINT uq_clusters_id UNIQUE (id)
);
INSERT INTO "clusters" VALUES(1,'clu_01m8nwyp5q66sey7q1zm4bnxsq','done','UP',4,'root','cmp_01m8nwyp5rrqg48w907fzyej71',1,'{"machines":[{}],"ordered":false}','[{"provider":{"kind":"local"},"accelerator":null,"accelerator_count":1,"cpus":null,"memory_gb":null,"disk_gb":null,"region":null,"architecture":null,"max_hourly_cost":null}]',-1,0,3,NULL,NULL,1796031338633187,1796031338633187,1796031344819516,1796031343873943,NULL);
INSERT INTO "clusters" VALUES(2,'clu_01m8nwywb7kp5231vqfd9pb06m','half','UP',3,'root','cmp_01m8nwywb800z6brfmfgf3nakw',1,'{"machines":[{}],"ordered":false}','[{"provider":{"kind":"local"},"accelerator":null,"accelerator_count":1,"cpus":null,"memory_gb":null,"disk_gb":null,"region":null,"architecture":null,"max_hourly_cost":null}]',-1,0,2,NULL,NULL,1796031344974397,1796031344974397,1796031344974397,1796031350475324,NULL);
INSERT INTO "clusters" VALUES(3,'clu_01m8nwz1xsj1wsdhy96wttj05w','early','INIT',2,'root','cmp_01m8nwz1y00btdjc8vv6gjp2kh',1,'{"machines":[{}],"ordered":false}','[{"provider":{"kind":"local"},"accelerator":null,"accelerator_count":1,"cpus":null,"memory_gb":null,"disk_gb":null,"region":null,"architecture":null,"max_hourly_cost":null}]',-1,0,2,NULL,NULL,1796031350707620,1796031350707620,1796031350707620,NULL,NULL);
CREATE TABLE computes (
	seq INTEGER NOT NULL, 
	id VARCHAR(40) NOT NULL, 
	name VARCHAR(64), 
	state VARCHAR(16) NOT NULL, 
	version INTEGER NOT NULL, 
	revision INTEGER NOT NULL, 
	spec JSON NOT NULL, 
	generation INTEGER NOT NULL, 
	observed_generation INTEGER NOT NULL, 
	drift JSON, 
	pending JSON, 
	target_nodes INTEGER NOT NULL, 
	scaled_us BIGINT, 
	last_error JSON, 
	lease_owner VARCHAR(256), 
	lease_expires_us BIGINT, 
	owner VARCHAR(80), 
	created_us BIGINT NOT NULL, 
	ready_us BIGINT, 
	deleting_us BIGINT, 
	deleted_us BIGINT, 
	CONSTRAINT pk_computes PRIMARY KEY (seq), 
	CONSTRAINT uq_computes_id UNIQUE (id)
);
INSERT INTO "computes" VALUES(1,'cmp_01m8nwyp5rrqg48w907fzyej71',NULL,'ready',5,1,'{"specs":[{"provider":{"kind":"local"},"accelerator":null,"accelerator_count":1,"cpus":null,"memory_gb":null,"disk_gb":null,"region":null,"architecture":null,"max_hourly_cost":null}],"nodes":{"desired":1,"min":null,"max":null},"selection":"cheapest","allocation":"on_demand","image":{"base":null,"python":null,"pip":[],"pip_indexes":[],"apt":[],"env":{},"shell_vars":{},"includes":[],"includes_sha256":null,"excludes":[],"metrics":null,"skyward":"auto","warm":false,"bootstrap_timeout":900},"worker":{"executor":"process","concurrency":4,"buffer":0,"reuse":true},"options":{"provision_timeout":300.0,"ssh_connect_timeout":240.0,"ssh_retry_delay":2.0,"ssh_reconnect_attempts":30,"worker_timeout":60.0,"default_compute_timeout":0.0,"autoscale_idle_timeout":30.0,"autoscale_cooldown":0.0,"cluster":null,"health_command":null,"health_function":null,"health_interval":30.0,"health_timeout":15.0,"health_failures":3,"health_initial_delay":0.0},"plugins":[],"retry":{"safe_retries":3,"ambiguous_retries":0},"volumes":[],"delete_on_exit":false,"desired":"running","ttl":604800}',1,1,NULL,NULL,1,NULL,NULL,NULL,NULL,'clusters/clu_01m8nwyp5q66sey7q1zm4bnxsq',1796031338633187,1796031343857275,NULL,NULL);
INSERT INTO "computes" VALUES(2,'cmp_01m8nwywb800z6brfmfgf3nakw',NULL,'ready',5,1,'{"specs":[{"provider":{"kind":"local"},"accelerator":null,"accelerator_count":1,"cpus":null,"memory_gb":null,"disk_gb":null,"region":null,"architecture":null,"max_hourly_cost":null}],"nodes":{"desired":1,"min":null,"max":null},"selection":"cheapest","allocation":"on_demand","image":{"base":null,"python":null,"pip":[],"pip_indexes":[],"apt":[],"env":{},"shell_vars":{},"includes":[],"includes_sha256":null,"excludes":[],"metrics":null,"skyward":"auto","warm":false,"bootstrap_timeout":900},"worker":{"executor":"process","concurrency":4,"buffer":0,"reuse":true},"options":{"provision_timeout":300.0,"ssh_connect_timeout":240.0,"ssh_retry_delay":2.0,"ssh_reconnect_attempts":30,"worker_timeout":60.0,"default_compute_timeout":0.0,"autoscale_idle_timeout":30.0,"autoscale_cooldown":0.0,"cluster":null,"health_command":null,"health_function":null,"health_interval":30.0,"health_timeout":15.0,"health_failures":3,"health_initial_delay":0.0},"plugins":[],"retry":{"safe_retries":3,"ambiguous_retries":0},"volumes":[],"delete_on_exit":false,"desired":"running","ttl":604800}',1,1,NULL,NULL,1,NULL,NULL,NULL,NULL,'clusters/clu_01m8nwywb7kp5231vqfd9pb06m',1796031344974397,1796031350473752,NULL,NULL);
INSERT INTO "computes" VALUES(3,'cmp_01m8nwz1y00btdjc8vv6gjp2kh',NULL,'requested',1,1,'{"specs":[{"provider":{"kind":"local"},"accelerator":null,"accelerator_count":1,"cpus":null,"memory_gb":null,"disk_gb":null,"region":null,"architecture":null,"max_hourly_cost":null}],"nodes":{"desired":1,"min":null,"max":null},"selection":"cheapest","allocation":"on_demand","image":{"base":null,"python":null,"pip":[],"pip_indexes":[],"apt":[],"env":{},"shell_vars":{},"includes":[],"includes_sha256":null,"excludes":[],"metrics":null,"skyward":"auto","warm":false,"bootstrap_timeout":900},"worker":{"executor":"process","concurrency":4,"buffer":0,"reuse":true},"options":{"provision_timeout":300.0,"ssh_connect_timeout":240.0,"ssh_retry_delay":2.0,"ssh_reconnect_attempts":30,"worker_timeout":60.0,"default_compute_timeout":0.0,"autoscale_idle_timeout":30.0,"autoscale_cooldown":0.0,"cluster":null,"health_command":null,"health_function":null,"health_interval":30.0,"health_timeout":15.0,"health_failures":3,"health_initial_delay":0.0},"plugins":[],"retry":{"safe_retries":3,"ambiguous_retries":0},"volumes":[],"delete_on_exit":false,"desired":"running","ttl":604800}',1,0,NULL,NULL,1,NULL,NULL,NULL,NULL,'clusters/clu_01m8nwz1xsj1wsdhy96wttj05w',1796031350707620,NULL,NULL,NULL);
CREATE TABLE console_orders (
	job_id VARCHAR(40) NOT NULL, 
	ordinal INTEGER NOT NULL, 
	owner VARCHAR(80) NOT NULL, 
	amount_micro BIGINT NOT NULL, 
	leaving BOOLEAN NOT NULL, 
	noted_us BIGINT NOT NULL, 
	CONSTRAINT pk_console_orders PRIMARY KEY (job_id)
)
 WITHOUT ROWID

;
CREATE TABLE counters (
	name VARCHAR(32) NOT NULL, 
	value BIGINT NOT NULL, 
	CONSTRAINT pk_counters PRIMARY KEY (name)
)
 WITHOUT ROWID

;
INSERT INTO "counters" VALUES('events',38);
CREATE TABLE deliveries (
	seq INTEGER NOT NULL, 
	id VARCHAR(40) NOT NULL, 
	webhook_id VARCHAR(40) NOT NULL, 
	event_seq BIGINT NOT NULL, 
	event_id VARCHAR(40) NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	attempts INTEGER NOT NULL, 
	last_status INTEGER, 
	last_error VARCHAR(256), 
	created_us BIGINT NOT NULL, 
	due_us BIGINT, 
	tried_us BIGINT, 
	CONSTRAINT pk_deliveries PRIMARY KEY (seq), 
	CONSTRAINT uq_deliveries_webhook_id_event_seq UNIQUE (webhook_id, event_seq), 
	CONSTRAINT uq_deliveries_id UNIQUE (id)
);
CREATE TABLE events (
	seq INTEGER NOT NULL, 
	at_us BIGINT NOT NULL, 
	name VARCHAR(40) NOT NULL, 
	compute_id VARCHAR(40), 
	node_id VARCHAR(40), 
	task_id VARCHAR(40), 
	payload TEXT NOT NULL, 
	CONSTRAINT pk_events PRIMARY KEY (seq)
);
INSERT INTO "events" VALUES(1,1796031338633187,'compute.created','cmp_01m8nwyp5rrqg48w907fzyej71',NULL,NULL,'{"type":"compute.state","compute":"cmp_01m8nwyp5rrqg48w907fzyej71","state":"requested","error":null,"generation":null,"owner":null,"count":null}');
INSERT INTO "events" VALUES(2,1796031338807974,'node.requested','cmp_01m8nwyp5rrqg48w907fzyej71','nod_01m8nwypaerxxgd2hdyqgk9sfd',NULL,'{"type":"node.state","compute":"cmp_01m8nwyp5rrqg48w907fzyej71","node":"nod_01m8nwypaerxxgd2hdyqgk9sfd","state":"requested","error":null,"rank":0}');
INSERT INTO "events" VALUES(3,1796031338807974,'compute.provisioning','cmp_01m8nwyp5rrqg48w907fzyej71',NULL,NULL,'{"type":"compute.state","compute":"cmp_01m8nwyp5rrqg48w907fzyej71","state":"provisioning","error":null,"generation":null,"owner":null,"count":null}');
INSERT INTO "events" VALUES(4,1796031338970813,'node.provisioning','cmp_01m8nwyp5rrqg48w907fzyej71','nod_01m8nwypaerxxgd2hdyqgk9sfd',NULL,'{"type":"node.state","compute":"cmp_01m8nwyp5rrqg48w907fzyej71","node":"nod_01m8nwypaerxxgd2hdyqgk9sfd","state":"provisioning","error":null,"rank":0}');
INSERT INTO "events" VALUES(5,1796031338970813,'compute.bound','cmp_01m8nwyp5rrqg48w907fzyej71',NULL,NULL,'{"type":"compute.state","compute":"cmp_01m8nwyp5rrqg48w907fzyej71","state":"provisioning","error":null,"generation":null,"owner":null,"count":null}');
INSERT INTO "events" VALUES(6,1796031339352277,'node.connecting','cmp_01m8nwyp5rrqg48w907fzyej71','nod_01m8nwypaerxxgd2hdyqgk9sfd',NULL,'{"type":"node.state","compute":"cmp_01m8nwyp5rrqg48w907fzyej71","node":"nod_01m8nwypaerxxgd2hdyqgk9sfd","state":"connecting","error":null,"rank":0}');
INSERT INTO "events" VALUES(7,1796031340671448,'node.bootstrapping','cmp_01m8nwyp5rrqg48w907fzyej71','nod_01m8nwypaerxxgd2hdyqgk9sfd',NULL,'{"type":"node.state","compute":"cmp_01m8nwyp5rrqg48w907fzyej71","node":"nod_01m8nwypaerxxgd2hdyqgk9sfd","state":"bootstrapping","error":null,"rank":0}');
INSERT INTO "events" VALUES(8,1796031340725331,'node.phase','cmp_01m8nwyp5rrqg48w907fzyej71','nod_01m8nwypaerxxgd2hdyqgk9sfd',NULL,'{"type":"node.phase","compute":"cmp_01m8nwyp5rrqg48w907fzyej71","node":"nod_01m8nwypaerxxgd2hdyqgk9sfd","phase":"environment","event":"started","at":"2026-11-30T09:35:40.725331Z","error":null}');
INSERT INTO "events" VALUES(9,1796031340725331,'node.phase','cmp_01m8nwyp5rrqg48w907fzyej71','nod_01m8nwypaerxxgd2hdyqgk9sfd',NULL,'{"type":"node.phase","compute":"cmp_01m8nwyp5rrqg48w907fzyej71","node":"nod_01m8nwypaerxxgd2hdyqgk9sfd","phase":"environment","event":"completed","at":"2026-11-30T09:35:40.725331Z","error":null}');
INSERT INTO "events" VALUES(10,1796031340725331,'node.phase','cmp_01m8nwyp5rrqg48w907fzyej71','nod_01m8nwypaerxxgd2hdyqgk9sfd',NULL,'{"type":"node.phase","compute":"cmp_01m8nwyp5rrqg48w907fzyej71","node":"nod_01m8nwypaerxxgd2hdyqgk9sfd","phase":"workers","event":"started","at":"2026-11-30T09:35:40.725331Z","error":null}');
INSERT INTO "events" VALUES(11,1796031343841632,'node.phase','cmp_01m8nwyp5rrqg48w907fzyej71','nod_01m8nwypaerxxgd2hdyqgk9sfd',NULL,'{"type":"node.phase","compute":"cmp_01m8nwyp5rrqg48w907fzyej71","node":"nod_01m8nwypaerxxgd2hdyqgk9sfd","phase":"workers","event":"completed","at":"2026-11-30T09:35:43.841632Z","error":null}');
INSERT INTO "events" VALUES(12,1796031343841632,'node.ready','cmp_01m8nwyp5rrqg48w907fzyej71','nod_01m8nwypaerxxgd2hdyqgk9sfd',NULL,'{"type":"node.state","compute":"cmp_01m8nwyp5rrqg48w907fzyej71","node":"nod_01m8nwypaerxxgd2hdyqgk9sfd","state":"ready","error":null,"rank":0}');
INSERT INTO "events" VALUES(13,1796031343857275,'compute.generation.applied','cmp_01m8nwyp5rrqg48w907fzyej71',NULL,NULL,'{"type":"compute.state","compute":"cmp_01m8nwyp5rrqg48w907fzyej71","state":"provisioning","error":null,"generation":1,"owner":null,"count":null}');
INSERT INTO "events" VALUES(14,1796031343857275,'compute.ready','cmp_01m8nwyp5rrqg48w907fzyej71',NULL,NULL,'{"type":"compute.state","compute":"cmp_01m8nwyp5rrqg48w907fzyej71","state":"ready","error":null,"generation":null,"owner":null,"count":null}');
INSERT INTO "events" VALUES(15,1796031343923716,'task.queued','cmp_01m8nwyp5rrqg48w907fzyej71',NULL,'tsk_01m8nwyvaex0hw7ss82krc27ye','{"type":"task.state","compute":"cmp_01m8nwyp5rrqg48w907fzyej71","task":"tsk_01m8nwyvaex0hw7ss82krc27ye","state":"started","now":"queued","error":null}');
INSERT INTO "events" VALUES(16,1796031343978578,'task.started','cmp_01m8nwyp5rrqg48w907fzyej71',NULL,'tsk_01m8nwyvaex0hw7ss82krc27ye','{"type":"task.state","compute":"cmp_01m8nwyp5rrqg48w907fzyej71","task":"tsk_01m8nwyvaex0hw7ss82krc27ye","state":"started","now":"running","error":null}');
INSERT INTO "events" VALUES(17,1796031344096916,'node.console','cmp_01m8nwyp5rrqg48w907fzyej71','nod_01m8nwypaerxxgd2hdyqgk9sfd','tsk_01m8nwyvaex0hw7ss82krc27ye','{"type":"node.console","compute":"cmp_01m8nwyp5rrqg48w907fzyej71","node":"nod_01m8nwypaerxxgd2hdyqgk9sfd","content":"done","task":"tsk_01m8nwyvaex0hw7ss82krc27ye","stream":"stdout","rank":0}');
INSERT INTO "events" VALUES(18,1796031344162879,'task.succeeded','cmp_01m8nwyp5rrqg48w907fzyej71',NULL,'tsk_01m8nwyvaex0hw7ss82krc27ye','{"type":"task.state","compute":"cmp_01m8nwyp5rrqg48w907fzyej71","task":"tsk_01m8nwyvaex0hw7ss82krc27ye","state":"succeeded","now":"succeeded","error":null}');
INSERT INTO "events" VALUES(19,1796031344915979,'task.queued','cmp_01m8nwyp5rrqg48w907fzyej71',NULL,'tsk_01m8nwyw9tn2yhgs6yy2zrmc1f','{"type":"task.state","compute":"cmp_01m8nwyp5rrqg48w907fzyej71","task":"tsk_01m8nwyw9tn2yhgs6yy2zrmc1f","state":"started","now":"queued","error":null}');
INSERT INTO "events" VALUES(20,1796031344973160,'task.started','cmp_01m8nwyp5rrqg48w907fzyej71',NULL,'tsk_01m8nwyw9tn2yhgs6yy2zrmc1f','{"type":"task.state","compute":"cmp_01m8nwyp5rrqg48w907fzyej71","task":"tsk_01m8nwyw9tn2yhgs6yy2zrmc1f","state":"started","now":"running","error":null}');
INSERT INTO "events" VALUES(21,1796031344974397,'compute.created','cmp_01m8nwywb800z6brfmfgf3nakw',NULL,NULL,'{"type":"compute.state","compute":"cmp_01m8nwywb800z6brfmfgf3nakw","state":"requested","error":null,"generation":null,"owner":null,"count":null}');
INSERT INTO "events" VALUES(22,1796031345094522,'node.requested','cmp_01m8nwywb800z6brfmfgf3nakw','nod_01m8nwywe6esd1cy32p2pnxb9p',NULL,'{"type":"node.state","compute":"cmp_01m8nwywb800z6brfmfgf3nakw","node":"nod_01m8nwywe6esd1cy32p2pnxb9p","state":"requested","error":null,"rank":0}');
INSERT INTO "events" VALUES(23,1796031345094522,'compute.provisioning','cmp_01m8nwywb800z6brfmfgf3nakw',NULL,NULL,'{"type":"compute.state","compute":"cmp_01m8nwywb800z6brfmfgf3nakw","state":"provisioning","error":null,"generation":null,"owner":null,"count":null}');
INSERT INTO "events" VALUES(24,1796031345136046,'node.console','cmp_01m8nwyp5rrqg48w907fzyej71','nod_01m8nwypaerxxgd2hdyqgk9sfd','tsk_01m8nwyw9tn2yhgs6yy2zrmc1f','{"type":"node.console","compute":"cmp_01m8nwyp5rrqg48w907fzyej71","node":"nod_01m8nwypaerxxgd2hdyqgk9sfd","content":"begun","task":"tsk_01m8nwyw9tn2yhgs6yy2zrmc1f","stream":"stdout","rank":0}');
INSERT INTO "events" VALUES(25,1796031345269205,'node.provisioning','cmp_01m8nwywb800z6brfmfgf3nakw','nod_01m8nwywe6esd1cy32p2pnxb9p',NULL,'{"type":"node.state","compute":"cmp_01m8nwywb800z6brfmfgf3nakw","node":"nod_01m8nwywe6esd1cy32p2pnxb9p","state":"provisioning","error":null,"rank":0}');
INSERT INTO "events" VALUES(26,1796031345269205,'compute.bound','cmp_01m8nwywb800z6brfmfgf3nakw',NULL,NULL,'{"type":"compute.state","compute":"cmp_01m8nwywb800z6brfmfgf3nakw","state":"provisioning","error":null,"generation":null,"owner":null,"count":null}');
INSERT INTO "events" VALUES(27,1796031345694186,'node.connecting','cmp_01m8nwywb800z6brfmfgf3nakw','nod_01m8nwywe6esd1cy32p2pnxb9p',NULL,'{"type":"node.state","compute":"cmp_01m8nwywb800z6brfmfgf3nakw","node":"nod_01m8nwywe6esd1cy32p2pnxb9p","state":"connecting","error":null,"rank":0}');
INSERT INTO "events" VALUES(28,1796031347137618,'node.bootstrapping','cmp_01m8nwywb800z6brfmfgf3nakw','nod_01m8nwywe6esd1cy32p2pnxb9p',NULL,'{"type":"node.state","compute":"cmp_01m8nwywb800z6brfmfgf3nakw","node":"nod_01m8nwywe6esd1cy32p2pnxb9p","state":"bootstrapping","error":null,"rank":0}');
INSERT INTO "events" VALUES(29,1796031347163081,'node.phase','cmp_01m8nwywb800z6brfmfgf3nakw','nod_01m8nwywe6esd1cy32p2pnxb9p',NULL,'{"type":"node.phase","compute":"cmp_01m8nwywb800z6brfmfgf3nakw","node":"nod_01m8nwywe6esd1cy32p2pnxb9p","phase":"environment","event":"started","at":"2026-11-30T09:35:47.163081Z","error":null}');
INSERT INTO "events" VALUES(30,1796031347163081,'node.phase','cmp_01m8nwywb800z6brfmfgf3nakw','nod_01m8nwywe6esd1cy32p2pnxb9p',NULL,'{"type":"node.phase","compute":"cmp_01m8nwywb800z6brfmfgf3nakw","node":"nod_01m8nwywe6esd1cy32p2pnxb9p","phase":"environment","event":"completed","at":"2026-11-30T09:35:47.163081Z","error":null}');
INSERT INTO "events" VALUES(31,1796031347163081,'node.phase','cmp_01m8nwywb800z6brfmfgf3nakw','nod_01m8nwywe6esd1cy32p2pnxb9p',NULL,'{"type":"node.phase","compute":"cmp_01m8nwywb800z6brfmfgf3nakw","node":"nod_01m8nwywe6esd1cy32p2pnxb9p","phase":"workers","event":"started","at":"2026-11-30T09:35:47.163081Z","error":null}');
INSERT INTO "events" VALUES(32,1796031350472248,'node.phase','cmp_01m8nwywb800z6brfmfgf3nakw','nod_01m8nwywe6esd1cy32p2pnxb9p',NULL,'{"type":"node.phase","compute":"cmp_01m8nwywb800z6brfmfgf3nakw","node":"nod_01m8nwywe6esd1cy32p2pnxb9p","phase":"workers","event":"completed","at":"2026-11-30T09:35:50.472248Z","error":null}');
INSERT INTO "events" VALUES(33,1796031350472248,'node.ready','cmp_01m8nwywb800z6brfmfgf3nakw','nod_01m8nwywe6esd1cy32p2pnxb9p',NULL,'{"type":"node.state","compute":"cmp_01m8nwywb800z6brfmfgf3nakw","node":"nod_01m8nwywe6esd1cy32p2pnxb9p","state":"ready","error":null,"rank":0}');
INSERT INTO "events" VALUES(34,1796031350473752,'compute.generation.applied','cmp_01m8nwywb800z6brfmfgf3nakw',NULL,NULL,'{"type":"compute.state","compute":"cmp_01m8nwywb800z6brfmfgf3nakw","state":"provisioning","error":null,"generation":1,"owner":null,"count":null}');
INSERT INTO "events" VALUES(35,1796031350473752,'compute.ready','cmp_01m8nwywb800z6brfmfgf3nakw',NULL,NULL,'{"type":"compute.state","compute":"cmp_01m8nwywb800z6brfmfgf3nakw","state":"ready","error":null,"generation":null,"owner":null,"count":null}');
INSERT INTO "events" VALUES(36,1796031350478213,'task.queued','cmp_01m8nwywb800z6brfmfgf3nakw',NULL,'tsk_01m8nwz1pfssrnnezx0pfwebq7','{"type":"task.state","compute":"cmp_01m8nwywb800z6brfmfgf3nakw","task":"tsk_01m8nwz1pfssrnnezx0pfwebq7","state":"started","now":"queued","error":null}');
INSERT INTO "events" VALUES(37,1796031350492495,'task.started','cmp_01m8nwywb800z6brfmfgf3nakw',NULL,'tsk_01m8nwz1pfssrnnezx0pfwebq7','{"type":"task.state","compute":"cmp_01m8nwywb800z6brfmfgf3nakw","task":"tsk_01m8nwz1pfssrnnezx0pfwebq7","state":"started","now":"running","error":null}');
INSERT INTO "events" VALUES(38,1796031350707620,'compute.created','cmp_01m8nwz1y00btdjc8vv6gjp2kh',NULL,NULL,'{"type":"compute.state","compute":"cmp_01m8nwz1y00btdjc8vv6gjp2kh","state":"requested","error":null,"generation":null,"owner":null,"count":null}');
CREATE TABLE executions (
	seq INTEGER NOT NULL, 
	id VARCHAR(40) NOT NULL, 
	task_id VARCHAR(40) NOT NULL, 
	compute_id VARCHAR(40) NOT NULL, 
	ordinal INTEGER NOT NULL, 
	place INTEGER NOT NULL, 
	rank INTEGER NOT NULL, 
	wanted_rank INTEGER, 
	state VARCHAR(20) NOT NULL, 
	version INTEGER NOT NULL, 
	node_id VARCHAR(40), 
	retry_of VARCHAR(40), 
	retry_kind VARCHAR(16), 
	result_sha256 VARCHAR(64), 
	error JSON, 
	late_report JSON, 
	console_lines INTEGER NOT NULL, 
	items INTEGER NOT NULL, 
	created_us BIGINT NOT NULL, 
	assigned_us BIGINT, 
	started_us BIGINT, 
	finished_us BIGINT, 
	cancel_deadline_us BIGINT, 
	CONSTRAINT pk_executions PRIMARY KEY (seq), 
	CONSTRAINT uq_executions_id UNIQUE (id)
);
INSERT INTO "executions" VALUES(1,'exe_01m8nwyvb7mjd1gw9e3xwgky05','tsk_01m8nwyvaex0hw7ss82krc27ye','cmp_01m8nwyp5rrqg48w907fzyej71',1,0,0,0,'succeeded',5,'nod_01m8nwypaerxxgd2hdyqgk9sfd',NULL,NULL,'e81bc160c0843ee56f31f12997bb3aff50528d596002d4866676cb8a1b19195a',NULL,NULL,1,0,1796031343923716,1796031343977720,1796031344041711,1796031344162879,NULL);
INSERT INTO "executions" VALUES(2,'exe_01m8nwyw9vr2m8nhy4z4eczak8','tsk_01m8nwyw9tn2yhgs6yy2zrmc1f','cmp_01m8nwyp5rrqg48w907fzyej71',1,0,0,0,'started',4,'nod_01m8nwypaerxxgd2hdyqgk9sfd',NULL,NULL,NULL,NULL,NULL,0,0,1796031344915979,1796031344956548,1796031345097194,NULL,NULL);
INSERT INTO "executions" VALUES(3,'exe_01m8nwz1pffbpykqfrd23seff1','tsk_01m8nwz1pfssrnnezx0pfwebq7','cmp_01m8nwywb800z6brfmfgf3nakw',1,0,0,0,'started',4,'nod_01m8nwywe6esd1cy32p2pnxb9p',NULL,NULL,NULL,NULL,NULL,0,0,1796031350478213,1796031350480674,1796031350583403,NULL,NULL);
CREATE TABLE functions (
	seq INTEGER NOT NULL, 
	sha256 VARCHAR(64) NOT NULL, 
	codec VARCHAR(64) NOT NULL, 
	name VARCHAR(256), 
	size_bytes BIGINT NOT NULL, 
	created_us BIGINT NOT NULL, 
	CONSTRAINT pk_functions PRIMARY KEY (seq), 
	CONSTRAINT uq_functions_sha256 UNIQUE (sha256)
);
INSERT INTO "functions" VALUES(1,'38f9fda89be5a1e9ad9c7f0ed50cbc9c2099bbe92ffc6fd60a3832f9811b269c','sky-step','run',613,1796031343923716);
INSERT INTO "functions" VALUES(2,'dd3f0df5a84e7a86497ce05e7e734948ca200b4237abad8660f67784c3ddcc3c','sky-step','run',625,1796031344915979);
INSERT INTO "functions" VALUES(3,'caed1214da8a7f6ee5e3c0874b56173fe6754854952938c0ef0dc9e460b128c7','sky-step','setup',615,1796031350478213);
CREATE TABLE generations (
	compute_id VARCHAR(40) NOT NULL, 
	number INTEGER NOT NULL, 
	spec JSON NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	created_us BIGINT NOT NULL, 
	CONSTRAINT pk_generations PRIMARY KEY (compute_id, number)
)
 WITHOUT ROWID

;
INSERT INTO "generations" VALUES('cmp_01m8nwyp5rrqg48w907fzyej71',1,'{"specs":[{"provider":{"kind":"local"},"accelerator":null,"accelerator_count":1,"cpus":null,"memory_gb":null,"disk_gb":null,"region":null,"architecture":null,"max_hourly_cost":null}],"nodes":{"desired":1,"min":null,"max":null},"selection":"cheapest","allocation":"on_demand","image":{"base":null,"python":null,"pip":[],"pip_indexes":[],"apt":[],"env":{},"shell_vars":{},"includes":[],"includes_sha256":null,"excludes":[],"metrics":null,"skyward":"auto","warm":false,"bootstrap_timeout":900},"worker":{"executor":"process","concurrency":4,"buffer":0,"reuse":true},"options":{"provision_timeout":300.0,"ssh_connect_timeout":240.0,"ssh_retry_delay":2.0,"ssh_reconnect_attempts":30,"worker_timeout":60.0,"default_compute_timeout":0.0,"autoscale_idle_timeout":30.0,"autoscale_cooldown":0.0,"cluster":null,"health_command":null,"health_function":null,"health_interval":30.0,"health_timeout":15.0,"health_failures":3,"health_initial_delay":0.0},"plugins":[],"retry":{"safe_retries":3,"ambiguous_retries":0},"volumes":[],"delete_on_exit":false,"desired":"running","ttl":604800}','d100efd694e4bd3d42cd9c38d86b841cb97f20763ab9eaf8a65d03c993b0d3b3',1796031338633187);
INSERT INTO "generations" VALUES('cmp_01m8nwywb800z6brfmfgf3nakw',1,'{"specs":[{"provider":{"kind":"local"},"accelerator":null,"accelerator_count":1,"cpus":null,"memory_gb":null,"disk_gb":null,"region":null,"architecture":null,"max_hourly_cost":null}],"nodes":{"desired":1,"min":null,"max":null},"selection":"cheapest","allocation":"on_demand","image":{"base":null,"python":null,"pip":[],"pip_indexes":[],"apt":[],"env":{},"shell_vars":{},"includes":[],"includes_sha256":null,"excludes":[],"metrics":null,"skyward":"auto","warm":false,"bootstrap_timeout":900},"worker":{"executor":"process","concurrency":4,"buffer":0,"reuse":true},"options":{"provision_timeout":300.0,"ssh_connect_timeout":240.0,"ssh_retry_delay":2.0,"ssh_reconnect_attempts":30,"worker_timeout":60.0,"default_compute_timeout":0.0,"autoscale_idle_timeout":30.0,"autoscale_cooldown":0.0,"cluster":null,"health_command":null,"health_function":null,"health_interval":30.0,"health_timeout":15.0,"health_failures":3,"health_initial_delay":0.0},"plugins":[],"retry":{"safe_retries":3,"ambiguous_retries":0},"volumes":[],"delete_on_exit":false,"desired":"running","ttl":604800}','d100efd694e4bd3d42cd9c38d86b841cb97f20763ab9eaf8a65d03c993b0d3b3',1796031344974397);
INSERT INTO "generations" VALUES('cmp_01m8nwz1y00btdjc8vv6gjp2kh',1,'{"specs":[{"provider":{"kind":"local"},"accelerator":null,"accelerator_count":1,"cpus":null,"memory_gb":null,"disk_gb":null,"region":null,"architecture":null,"max_hourly_cost":null}],"nodes":{"desired":1,"min":null,"max":null},"selection":"cheapest","allocation":"on_demand","image":{"base":null,"python":null,"pip":[],"pip_indexes":[],"apt":[],"env":{},"shell_vars":{},"includes":[],"includes_sha256":null,"excludes":[],"metrics":null,"skyward":"auto","warm":false,"bootstrap_timeout":900},"worker":{"executor":"process","concurrency":4,"buffer":0,"reuse":true},"options":{"provision_timeout":300.0,"ssh_connect_timeout":240.0,"ssh_retry_delay":2.0,"ssh_reconnect_attempts":30,"worker_timeout":60.0,"default_compute_timeout":0.0,"autoscale_idle_timeout":30.0,"autoscale_cooldown":0.0,"cluster":null,"health_command":null,"health_function":null,"health_interval":30.0,"health_timeout":15.0,"health_failures":3,"health_initial_delay":0.0},"plugins":[],"retry":{"safe_retries":3,"ambiguous_retries":0},"volumes":[],"delete_on_exit":false,"desired":"running","ttl":604800}','d100efd694e4bd3d42cd9c38d86b841cb97f20763ab9eaf8a65d03c993b0d3b3',1796031350707620);
CREATE TABLE idempotency (
	"key" VARCHAR(320) NOT NULL, 
	fingerprint VARCHAR(64) NOT NULL, 
	answer JSON NOT NULL, 
	created_us BIGINT NOT NULL, 
	CONSTRAINT pk_idempotency PRIMARY KEY ("key")
)
 WITHOUT ROWID

;
CREATE TABLE items (
	execution_id VARCHAR(40) NOT NULL, 
	"index" INTEGER NOT NULL, 
	value_sha256 VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_items PRIMARY KEY (execution_id, "index")
)
 WITHOUT ROWID

;
CREATE TABLE job_events (
	seq INTEGER NOT NULL, 
	id VARCHAR(40) NOT NULL, 
	job_id VARCHAR(40) NOT NULL, 
	owner VARCHAR(80) NOT NULL, 
	type VARCHAR(40) NOT NULL, 
	data JSON NOT NULL, 
	at_us BIGINT NOT NULL, 
	CONSTRAINT pk_job_events PRIMARY KEY (seq), 
	CONSTRAINT uq_job_events_id UNIQUE (id)
);
CREATE TABLE jobs (
	seq INTEGER NOT NULL, 
	id VARCHAR(40) NOT NULL, 
	owner VARCHAR(80) NOT NULL, 
	key_id VARCHAR(40) NOT NULL, 
	backend VARCHAR(16) NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	version INTEGER NOT NULL, 
	sku VARCHAR(64) NOT NULL, 
	tier VARCHAR(16) NOT NULL, 
	gpu_count INTEGER NOT NULL, 
	interruptible BOOLEAN NOT NULL, 
	price_micro BIGINT NOT NULL, 
	machines JSON NOT NULL, 
	spec JSON NOT NULL, 
	labels JSON NOT NULL, 
	max_runtime_seconds INTEGER NOT NULL, 
	holds INTEGER NOT NULL, 
	compute_id VARCHAR(40), 
	prepare_task VARCHAR(40), 
	run_task VARCHAR(40), 
	upload_task VARCHAR(40), 
	placement JSON, 
	stop_error JSON, 
	error JSON, 
	exit_code INTEGER, 
	settled_micro BIGINT, 
	created_us BIGINT NOT NULL, 
	started_us BIGINT, 
	ended_us BIGINT, 
	exhausted_us BIGINT, 
	finished_us BIGINT, 
	settled_us BIGINT, 
	manifest_us BIGINT, 
	truncated BOOLEAN NOT NULL, 
	CONSTRAINT pk_jobs PRIMARY KEY (seq), 
	CONSTRAINT uq_jobs_id UNIQUE (id)
);
CREATE TABLE ledger (
	seq INTEGER NOT NULL, 
	reference VARCHAR(200) NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	account VARCHAR(64) NOT NULL, 
	amount_micro BIGINT NOT NULL, 
	ordinal INTEGER, 
	balance_micro BIGINT, 
	job_id VARCHAR(40), 
	note VARCHAR(256), 
	at_us BIGINT NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_ledger PRIMARY KEY (seq), 
	CONSTRAINT uq_ledger_reference_account UNIQUE (reference, account), 
	CONSTRAINT uq_ledger_account_ordinal UNIQUE (account, ordinal), 
	CONSTRAINT ck_ledger_not_below_zero CHECK (balance_micro IS NULL OR balance_micro >= 0)
);
CREATE TABLE nodes (
	seq INTEGER NOT NULL, 
	id VARCHAR(40) NOT NULL, 
	compute_id VARCHAR(40) NOT NULL, 
	rank INTEGER NOT NULL, 
	generation INTEGER NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	version INTEGER NOT NULL, 
	revision INTEGER NOT NULL, 
	provider_id VARCHAR(40), 
	provider_kind VARCHAR(64), 
	offer JSON, 
	passed_over JSON, 
	market VARCHAR(16), 
	price_micro BIGINT NOT NULL, 
	billing_unit VARCHAR(8), 
	accelerator VARCHAR(64), 
	machine VARCHAR(256), 
	address VARCHAR(256), 
	binding JSON, 
	token VARCHAR(64) NOT NULL, 
	boot VARCHAR(64), 
	heard INTEGER NOT NULL, 
	python VARCHAR(16), 
	slots INTEGER NOT NULL, 
	window INTEGER NOT NULL, 
	last_error JSON, 
	created_us BIGINT NOT NULL, 
	bound_us BIGINT, 
	launch_deadline_us BIGINT, 
	connect_deadline_us BIGINT, 
	launched_us BIGINT, 
	ready_us BIGINT, 
	last_seen_us BIGINT, 
	worked_us BIGINT, 
	unwanted_us BIGINT, 
	deleting_us BIGINT, 
	fenced_us BIGINT, 
	terminated_us BIGINT, 
	CONSTRAINT pk_nodes PRIMARY KEY (seq), 
	CONSTRAINT uq_nodes_id UNIQUE (id)
);
INSERT INTO "nodes" VALUES(1,'nod_01m8nwypaerxxgd2hdyqgk9sfd','cmp_01m8nwyp5rrqg48w907fzyej71',0,1,'ready',5,1,'prv_01m8nwym5wn80225jbmcgtfea2','local','{"id":"ofr_ea0a636321fe6d3829bac84b9b","provider_id":"prv_01m8nwym5wn80225jbmcgtfea2","provider_name":"local","kind":"local","instance_type":"local-1","cpus":1,"memory_gb":11.77,"accelerator":null,"accelerator_count":0,"vram":null,"disk_gb":null,"architecture":"x86_64","region":"local","available":null,"on_demand_micro":0,"spot_micro":null,"billing_unit":"second","specific":{"gpus_total":0}}','[]','on_demand',0,'second',NULL,'nod_01m8nwypaerxxgd2hdyqgk9sfd','127.0.0.1','{"pid":12566,"folder":"@HOME@/nodes/nod_01m8nwypaerxxgd2hdyqgk9sfd","instance_type":"local-1"}','4c6e22264f0509d143caeae499e407169eeb045b823d4fffa497ab4fd96c3a53','737d32092e1e7486c7d0232f',6,'3.11.7',4,4,NULL,1796031338807974,1796031338939380,1796031638939380,1796031578997870,1796031338997870,1796031343841632,1796031348722404,1796031344162879,NULL,NULL,NULL,NULL);
INSERT INTO "nodes" VALUES(2,'nod_01m8nwywe6esd1cy32p2pnxb9p','cmp_01m8nwywb800z6brfmfgf3nakw',0,1,'ready',5,1,'prv_01m8nwym5wn80225jbmcgtfea2','local','{"id":"ofr_ea0a636321fe6d3829bac84b9b","provider_id":"prv_01m8nwym5wn80225jbmcgtfea2","provider_name":"local","kind":"local","instance_type":"local-1","cpus":1,"memory_gb":11.77,"accelerator":null,"accelerator_count":0,"vram":null,"disk_gb":null,"architecture":"x86_64","region":"local","available":null,"on_demand_micro":0,"spot_micro":null,"billing_unit":"second","specific":{"gpus_total":0}}','[]','on_demand',0,'second',NULL,'nod_01m8nwywe6esd1cy32p2pnxb9p','127.0.0.1','{"pid":14062,"folder":"@HOME@/nodes/nod_01m8nwywe6esd1cy32p2pnxb9p","instance_type":"local-1"}','7ee754cd965d4b82117619d7643342a65ce026d146114cac51df45f3df176bb7','1ea43edaafec364bd81e08ae',3,'3.11.7',4,4,NULL,1796031345094522,1796031345243749,1796031645243749,1796031585281184,1796031345281184,1796031350472248,1796031350649120,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE offers (
	id VARCHAR(64) NOT NULL, 
	provider_id VARCHAR(40) NOT NULL, 
	body JSON NOT NULL, 
	fetched_us BIGINT NOT NULL, 
	expires_us BIGINT NOT NULL, 
	CONSTRAINT pk_offers PRIMARY KEY (id)
);
INSERT INTO "offers" VALUES('ofr_ea0a636321fe6d3829bac84b9b','prv_01m8nwym5wn80225jbmcgtfea2','{"id":"ofr_ea0a636321fe6d3829bac84b9b","provider_id":"prv_01m8nwym5wn80225jbmcgtfea2","provider_name":"local","kind":"local","instance_type":"local-1","cpus":1,"memory_gb":11.77,"accelerator":null,"accelerator_count":0,"vram":null,"disk_gb":null,"architecture":"x86_64","region":"local","available":null,"on_demand_micro":0,"spot_micro":null,"billing_unit":"second","specific":{"gpus_total":0}}',1796031338906466,1796034938906466);
INSERT INTO "offers" VALUES('ofr_d6d1679b44d2e1794b4411e012','prv_01m8nwym5wn80225jbmcgtfea2','{"id":"ofr_d6d1679b44d2e1794b4411e012","provider_id":"prv_01m8nwym5wn80225jbmcgtfea2","provider_name":"local","kind":"local","instance_type":"local-2","cpus":2,"memory_gb":23.54,"accelerator":null,"accelerator_count":0,"vram":null,"disk_gb":null,"architecture":"x86_64","region":"local","available":null,"on_demand_micro":0,"spot_micro":null,"billing_unit":"second","specific":{"gpus_total":0}}',1796031338906466,1796034938906466);
CREATE TABLE passes (
	"key" VARCHAR(80) NOT NULL, 
	version INTEGER NOT NULL, 
	due_us BIGINT, 
	holder VARCHAR(64), 
	held_until_us BIGINT, 
	decision TEXT, 
	decided_us BIGINT, 
	failures INTEGER NOT NULL, 
	error TEXT, 
	CONSTRAINT pk_passes PRIMARY KEY ("key")
)
 WITHOUT ROWID

;
INSERT INTO "passes" VALUES('attempts/cmp_01m8nwyp5rrqg48w907fzyej71',2,NULL,'e5aa5b9024c302d9',1796031404019820,'nothing is overdue',1796031345047389,0,NULL);
INSERT INTO "passes" VALUES('attempts/cmp_01m8nwywb800z6brfmfgf3nakw',1,NULL,'e5aa5b9024c302d9',1796031410515926,'nothing is overdue',1796031350515926,0,NULL);
INSERT INTO "passes" VALUES('clusters/clu_01m8nwyp5q66sey7q1zm4bnxsq',14,NULL,'e5aa5b9024c302d9',1796031398833777,'1 jobs are under way',1796031345159139,0,NULL);
INSERT INTO "passes" VALUES('clusters/clu_01m8nwywb7kp5231vqfd9pb06m',7,NULL,'e5aa5b9024c302d9',1796031405096730,'1 jobs are under way',1796031350538195,0,NULL);
INSERT INTO "passes" VALUES('clusters/clu_01m8nwz1xsj1wsdhy96wttj05w',1,1796031350707620,NULL,NULL,NULL,NULL,0,NULL);
INSERT INTO "passes" VALUES('computes/cmp_01m8nwyp5rrqg48w907fzyej71',7,NULL,'e5aa5b9024c302d9',1796031398807974,'1 of 1 nodes are ready',1796031343884797,0,NULL);
INSERT INTO "passes" VALUES('computes/cmp_01m8nwywb800z6brfmfgf3nakw',7,NULL,'e5aa5b9024c302d9',1796031405094522,'1 of 1 nodes are ready',1796031350477087,0,NULL);
INSERT INTO "passes" VALUES('computes/cmp_01m8nwz1y00btdjc8vv6gjp2kh',1,1796031350707620,NULL,NULL,NULL,NULL,0,NULL);
INSERT INTO "passes" VALUES('dispatch/cmp_01m8nwyp5rrqg48w907fzyej71',1,NULL,'e5aa5b9024c302d9',1796031400704322,'assigned 1 of 1 waiting to 1 ready nodes',1796031344956548,0,NULL);
INSERT INTO "passes" VALUES('dispatch/cmp_01m8nwywb800z6brfmfgf3nakw',1,NULL,'e5aa5b9024c302d9',1796031407144852,'assigned 1 of 1 waiting to 1 ready nodes',1796031350480674,0,NULL);
INSERT INTO "passes" VALUES('forget/old',1,1796031636744323,'e5aa5b9024c302d9',1796031396744323,'of what is old, dropped 0 notes, 0 requests and 0 events',1796031336744323,0,NULL);
INSERT INTO "passes" VALUES('nodes/nod_01m8nwypaerxxgd2hdyqgk9sfd',5,NULL,'e5aa5b9024c302d9',1796031398915347,'serves',1796031343870971,0,NULL);
INSERT INTO "passes" VALUES('nodes/nod_01m8nwywe6esd1cy32p2pnxb9p',5,NULL,'e5aa5b9024c302d9',1796031405182905,'serves',1796031350478098,0,NULL);
INSERT INTO "passes" VALUES('offers/prv_01m8nwym5wn80225jbmcgtfea2',1,NULL,'e5aa5b9024c302d9',1796031396787917,'2 offers',1796031338906466,0,NULL);
INSERT INTO "passes" VALUES('requests/01m8nwyp47vcc6g0haqvy6bbf2',2,NULL,'e5aa5b9024c302d9',1796031398633187,'its job is queued',1796031343898373,0,NULL);
INSERT INTO "passes" VALUES('requests/01m8nwyw2zkckdrgrgvbfavajw',1,NULL,'e5aa5b9024c302d9',1796031404735624,'it failed: there is no cluster ''nosuch''; known: done. `sky launch -c nosuch ...` makes one',1796031344735624,0,NULL);
INSERT INTO "passes" VALUES('requests/01m8nwyw5kbec7dr39v4k7dq9g',2,NULL,'e5aa5b9024c302d9',1796031404819516,'it is over',1796031344890967,0,NULL);
INSERT INTO "passes" VALUES('requests/01m8nwywae49mkyddj4ff5rxjj',2,NULL,'e5aa5b9024c302d9',1796031404974397,'its job is SETTING_UP',1796031350564558,0,NULL);
INSERT INTO "passes" VALUES('requests/01m8nwz1xkztjnk2bxjagzt8vh',2,1796031350707620,'e5aa5b9024c302d9',1796031410707620,NULL,NULL,0,NULL);
INSERT INTO "passes" VALUES('sweep/prv_01m8nwym5wn80225jbmcgtfea2',1,1796031398787549,'e5aa5b9024c302d9',1796031396787960,'0 machines, each owned by a node',1796031338906365,0,NULL);
INSERT INTO "passes" VALUES('watch/nodes',2,1796031353474191,'e5aa5b9024c302d9',1796031403868429,'0 of nodes are silent',1796031350474191,0,NULL);
CREATE TABLE providers (
	seq INTEGER NOT NULL, 
	id VARCHAR(40) NOT NULL, 
	name VARCHAR(64) NOT NULL, 
	kind VARCHAR(64) NOT NULL, 
	config JSON NOT NULL, 
	credentials BLOB, 
	offers_ttl_seconds INTEGER NOT NULL, 
	version INTEGER NOT NULL, 
	offers_fetched_us BIGINT, 
	last_error JSON, 
	created_us BIGINT NOT NULL, 
	CONSTRAINT pk_providers PRIMARY KEY (seq), 
	CONSTRAINT uq_providers_id UNIQUE (id), 
	CONSTRAINT uq_providers_name UNIQUE (name)
);
INSERT INTO "providers" VALUES(1,'prv_01m8nwym5wn80225jbmcgtfea2','local','local','{}',NULL,3600,1,1796031338906466,NULL,1796031336618004);
CREATE TABLE rendezvous (
	id VARCHAR(40) NOT NULL, 
	node_id VARCHAR(40) NOT NULL, 
	url VARCHAR(256) NOT NULL, 
	taken BOOLEAN NOT NULL, 
	created_us BIGINT NOT NULL, 
	CONSTRAINT pk_rendezvous PRIMARY KEY (id)
);
CREATE TABLE request_lines (
	request_id VARCHAR(40) NOT NULL, 
	"index" INTEGER NOT NULL, 
	text TEXT NOT NULL, 
	at_us BIGINT NOT NULL, 
	CONSTRAINT pk_request_lines PRIMARY KEY (request_id, "index")
)
 WITHOUT ROWID

;
INSERT INTO "request_lines" VALUES('01m8nwyp47vcc6g0haqvy6bbf2',1,'launching cluster ''done'' with 1 nodes',1796031338633187);
INSERT INTO "request_lines" VALUES('01m8nwyw2zkckdrgrgvbfavajw',1,'failed: there is no cluster ''nosuch''; known: done. `sky launch -c nosuch ...` makes one',1796031344735624);
INSERT INTO "request_lines" VALUES('01m8nwywae49mkyddj4ff5rxjj',1,'launching cluster ''half'' with 1 nodes',1796031344974397);
INSERT INTO "request_lines" VALUES('01m8nwz1xkztjnk2bxjagzt8vh',1,'launching cluster ''early'' with 1 nodes',1796031350707620);
CREATE TABLE requests (
	seq INTEGER NOT NULL, 
	id VARCHAR(40) NOT NULL, 
	name VARCHAR(40) NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	version INTEGER NOT NULL, 
	owner VARCHAR(64) NOT NULL, 
	cluster_name VARCHAR(64), 
	cluster_id VARCHAR(40), 
	job_number INTEGER, 
	body JSON NOT NULL, 
	result JSON, 
	error JSON, 
	tries INTEGER NOT NULL, 
	created_us BIGINT NOT NULL, 
	started_us BIGINT, 
	again_us BIGINT, 
	finished_us BIGINT, 
	CONSTRAINT pk_requests PRIMARY KEY (seq), 
	CONSTRAINT uq_requests_id UNIQUE (id)
);
INSERT INTO "requests" VALUES(1,'01m8nwyp47vcc6g0haqvy6bbf2','launch','SUCCEEDED',3,'root','done','clu_01m8nwyp5q66sey7q1zm4bnxsq',1,'{"task":{"name":"t","run":"echo done"},"cluster_name":"done"}','{"job_id":1,"handle":{"cluster_name":"done","cluster_id":"clu_01m8nwyp5q66sey7q1zm4bnxsq","compute_id":"cmp_01m8nwyp5rrqg48w907fzyej71","launched_nodes":1,"nodes":[{"rank":0,"address":"127.0.0.1","instance_type":"local-1"}]}}',NULL,0,1796031338631224,1796031338633187,NULL,1796031343898373);
INSERT INTO "requests" VALUES(2,'01m8nwyw2zkckdrgrgvbfavajw','queue','FAILED',2,'root','nosuch',NULL,NULL,'{"cluster_name":"nosuch"}',NULL,'{"type":"ClusterDoesNotExist","message":"there is no cluster ''nosuch''; known: done. `sky launch -c nosuch ...` makes one","details":{"cluster":"nosuch"}}',0,1796031344735406,NULL,NULL,1796031344735624);
INSERT INTO "requests" VALUES(3,'01m8nwyw5kbec7dr39v4k7dq9g','exec','SUCCEEDED',3,'root','done','clu_01m8nwyp5q66sey7q1zm4bnxsq',2,'{"task":{"run":"echo begun; sleep 600"},"cluster_name":"done"}','{"job_id":2,"handle":{"cluster_name":"done","cluster_id":"clu_01m8nwyp5q66sey7q1zm4bnxsq","compute_id":"cmp_01m8nwyp5rrqg48w907fzyej71","launched_nodes":1,"nodes":[{"rank":0,"address":"127.0.0.1","instance_type":"local-1"}]}}',NULL,0,1796031344819290,1796031344819516,NULL,1796031344889344);
INSERT INTO "requests" VALUES(4,'01m8nwywae49mkyddj4ff5rxjj','launch','RUNNING',2,'root','half','clu_01m8nwywb7kp5231vqfd9pb06m',1,'{"task":{"setup":"sleep 600","run":"true"},"cluster_name":"half"}',NULL,NULL,0,1796031344974224,1796031344974397,NULL,NULL);
INSERT INTO "requests" VALUES(21,'01m8nwz1xkztjnk2bxjagzt8vh','launch','RUNNING',2,'root','early','clu_01m8nwz1xsj1wsdhy96wttj05w',1,'{"task":{"run":"echo early"},"cluster_name":"early"}',NULL,NULL,0,1796031350707422,1796031350707620,NULL,NULL);
CREATE TABLE tasks (
	seq INTEGER NOT NULL, 
	id VARCHAR(40) NOT NULL, 
	compute_id VARCHAR(40) NOT NULL, 
	generation INTEGER NOT NULL, 
	function_sha256 VARCHAR(64) NOT NULL, 
	args_sha256 VARCHAR(64) NOT NULL, 
	dispatch VARCHAR(8) NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	version INTEGER NOT NULL, 
	rank INTEGER, 
	safe_retries INTEGER NOT NULL, 
	ambiguous_retries INTEGER NOT NULL, 
	timeout_seconds INTEGER, 
	correlation_id VARCHAR(256), 
	owner VARCHAR(80), 
	result_sha256 VARCHAR(64), 
	outcome_seq BIGINT, 
	consumed INTEGER NOT NULL, 
	submitted_us BIGINT NOT NULL, 
	deadline_us BIGINT, 
	cancel_requested_us BIGINT, 
	finished_us BIGINT, 
	CONSTRAINT pk_tasks PRIMARY KEY (seq), 
	CONSTRAINT uq_tasks_id UNIQUE (id)
);
INSERT INTO "tasks" VALUES(1,'tsk_01m8nwyvaex0hw7ss82krc27ye','cmp_01m8nwyp5rrqg48w907fzyej71',1,'38f9fda89be5a1e9ad9c7f0ed50cbc9c2099bbe92ffc6fd60a3832f9811b269c','44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a','one','succeeded',3,0,3,0,NULL,NULL,'clusters/clu_01m8nwyp5q66sey7q1zm4bnxsq','e81bc160c0843ee56f31f12997bb3aff50528d596002d4866676cb8a1b19195a',18,0,1796031343923716,NULL,NULL,1796031344162879);
INSERT INTO "tasks" VALUES(2,'tsk_01m8nwyw9tn2yhgs6yy2zrmc1f','cmp_01m8nwyp5rrqg48w907fzyej71',1,'dd3f0df5a84e7a86497ce05e7e734948ca200b4237abad8660f67784c3ddcc3c','44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a','one','running',2,0,3,0,NULL,NULL,'clusters/clu_01m8nwyp5q66sey7q1zm4bnxsq',NULL,NULL,0,1796031344915979,NULL,NULL,NULL);
INSERT INTO "tasks" VALUES(3,'tsk_01m8nwz1pfssrnnezx0pfwebq7','cmp_01m8nwywb800z6brfmfgf3nakw',1,'caed1214da8a7f6ee5e3c0874b56173fe6754854952938c0ef0dc9e460b128c7','44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a','one','running',2,0,3,0,NULL,NULL,'clusters/clu_01m8nwywb7kp5231vqfd9pb06m',NULL,NULL,0,1796031350478213,NULL,NULL,NULL);
CREATE TABLE webhooks (
	seq INTEGER NOT NULL, 
	id VARCHAR(40) NOT NULL, 
	owner VARCHAR(80) NOT NULL, 
	url VARCHAR(2048) NOT NULL, 
	secrets BLOB NOT NULL, 
	types JSON, 
	enabled BOOLEAN NOT NULL, 
	disabled_reason VARCHAR(256), 
	after_seq BIGINT NOT NULL, 
	created_us BIGINT NOT NULL, 
	deleted_us BIGINT, 
	CONSTRAINT pk_webhooks PRIMARY KEY (seq), 
	CONSTRAINT uq_webhooks_id UNIQUE (id)
);
CREATE UNIQUE INDEX uq_computes_live_name ON computes (name) WHERE deleted_us IS NULL;
CREATE INDEX ix_computes_state_seq ON computes (state, seq);
CREATE INDEX ix_nodes_compute ON nodes (compute_id, seq);
CREATE UNIQUE INDEX uq_nodes_live_rank ON nodes (compute_id, rank) WHERE (state NOT IN ('lost', 'deleting', 'deleted', 'failed'));
CREATE INDEX ix_tasks_compute ON tasks (compute_id, seq);
CREATE INDEX ix_tasks_correlation ON tasks (correlation_id, outcome_seq) WHERE correlation_id IS NOT NULL;
CREATE INDEX ix_tasks_finished ON tasks (compute_id, finished_us) WHERE finished_us IS NOT NULL;
CREATE INDEX ix_tasks_deadline ON tasks (compute_id, deadline_us) WHERE deadline_us IS NOT NULL AND finished_us IS NULL;
CREATE INDEX ix_executions_waiting ON executions (compute_id, seq) WHERE node_id IS NULL AND finished_us IS NULL;
CREATE INDEX ix_executions_on_node ON executions (node_id) WHERE node_id IS NOT NULL AND finished_us IS NULL;
CREATE INDEX ix_executions_task ON executions (task_id, ordinal);
CREATE INDEX ix_offers_provider_id ON offers (provider_id);
CREATE INDEX ix_events_compute ON events (compute_id, seq);
CREATE INDEX ix_events_task ON events (task_id, seq) WHERE task_id IS NOT NULL;
CREATE INDEX ix_idempotency_created ON idempotency (created_us);
CREATE INDEX ix_passes_due ON passes (due_us);
CREATE INDEX ix_rendezvous_node_id ON rendezvous (node_id);
CREATE INDEX ix_api_keys_account_id ON api_keys (account_id);
CREATE INDEX ix_ledger_job ON ledger (job_id) WHERE job_id IS NOT NULL;
CREATE INDEX ix_jobs_finished ON jobs (owner, finished_us);
CREATE INDEX ix_jobs_owner ON jobs (owner, seq);
CREATE INDEX ix_jobs_live ON jobs (owner, tier) WHERE state IN ('queued', 'provisioning', 'running');
CREATE INDEX ix_job_events_owner ON job_events (owner, seq);
CREATE INDEX ix_job_events_job ON job_events (job_id, seq);
CREATE INDEX ix_webhooks_owner ON webhooks (owner);
CREATE INDEX ix_requests_open ON requests (seq) WHERE finished_us IS NULL;
CREATE UNIQUE INDEX uq_clusters_live_name ON clusters (name) WHERE removed_us IS NULL;
CREATE INDEX ix_cluster_jobs_open ON cluster_jobs (cluster_id) WHERE ended_us IS NULL;
COMMIT;
