"""Airflow's pages in a real browser: a run is configured in the DAG's form and started there."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.integration.conftest import Run, Site

if TYPE_CHECKING:
    from selenium.webdriver import Chrome
    from selenium.webdriver.remote.webelement import WebElement

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.needs("chromedriver"), pytest.mark.needs("selenium")]
PAGE_SECONDS = 60
OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # needed by root
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--window-size=1400,1600",
)
TITLES = {
    "dataset_uri": "Data set (S3 prefix)",
    "instance_type": "Instance type",
    "nodes": "Number of instances",
    "epochs": "Epochs",
    "batch_size_per_gpu": "Batch size per GPU",
    "target_epoch_seconds": "Seconds an epoch may take",
    "budget_usd": "Budget (USD), at the longest run time",
}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    options = ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for option in (*OPTIONS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(option)
    chrome = Chrome(options=options, service=Service(str(shutil.which("chromedriver"))))
    try:
        yield chrome
    finally:
        chrome.quit()


@pytest.fixture
def form(site: Site, browser: Chrome, retrained: Run) -> WebElement:  # the first run is not this test's
    """Return the form that the DAG's page opens."""
    browser.get(f"{site.airflow.url}/dags/smd_retrain")
    visible(browser, "[data-testid=trigger-dag-button]").click()
    field = visible(browser, "[role=dialog] input[name=element_epochs]")
    return field.find_element("xpath", "./ancestor::*[@role='dialog']")


def visible(browser: Chrome, selector: str) -> WebElement:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.expected_conditions import visibility_of_element_located
    from selenium.webdriver.support.wait import WebDriverWait

    wait = WebDriverWait(browser, PAGE_SECONDS)
    return wait.until(visibility_of_element_located((By.CSS_SELECTOR, selector)), f"no {selector}")


def fill(form: WebElement, name: str, text: str) -> None:
    from selenium.webdriver.common.keys import Keys

    field = form.find_element("name", f"element_{name}")
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys(text, Keys.TAB)


def test_the_form_names_every_param(form: WebElement):
    shown = [label.text.partition("\n")[0] for label in form.find_elements("css selector", "label")]

    assert [title for title in TITLES.values() if title not in shown] == []


def test_the_form_offers_instance_types_as_a_list(browser: Chrome, form: WebElement):
    from selenium.webdriver.common.keys import Keys

    form.find_element("css selector", "input[role=combobox]").send_keys(Keys.ARROW_DOWN)

    offered = [option.text for option in browser.find_elements("css selector", "[role=option]")]
    assert {"ml.g5.12xlarge", "ml.p4d.24xlarge", "ml.p5.48xlarge"} <= set(offered)


def test_a_run_started_from_the_form_takes_its_params_and_succeeds(
    site: Site, browser: Chrome, form: WebElement
):
    before = runs(site)
    fill(form, "epochs", "25")
    form.find_element("xpath", ".//button[normalize-space()='Trigger']").click()
    run = started(site, browser, before)

    assert run.end() == "success", {name: item["state"] for name, item in run.tasks().items()}
    (job,) = site.jobs(run)
    described = site.sandbox.client("sagemaker").describe_training_job(TrainingJobName=job["TrainingJobName"])
    assert described["HyperParameters"]["epochs"] == "25"
    browser.get(f"{site.airflow.url}/dags/smd_retrain/runs/{run.run_id}")
    assert visible(browser, "[data-testid=state-badge]").text == "Success"


def runs(site: Site) -> set[str]:
    found = site.airflow.call("GET", "/dags/smd_retrain/dagRuns?limit=100")["dag_runs"]
    return {run["dag_run_id"] for run in found}


def started(site: Site, browser: Chrome, before: set[str]) -> Run:
    from selenium.webdriver.support.wait import WebDriverWait

    new = WebDriverWait(browser, PAGE_SECONDS).until(lambda _: runs(site) - before, "no run was started")
    (run_id,) = new
    return Run(airflow=site.airflow, dag_id="smd_retrain", run_id=run_id)
